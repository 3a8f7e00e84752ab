#!/usr/bin/env python3
"""Bring what the tests and the benchmark need and pip cannot give: a JDK, Maven, kcat, Node, Kafka's jars, Spark's Kafka connector, gRPC for Node.

Programs are installed with apt-get where this user may; elsewhere the command is printed and the exit status is 1.
Libraries go to the cache directory ($LEVADA_CACHE, else ~/.cache/levada), fetched once by Maven and npm from wherever this
machine's are set up to look:

    kafka/libs/      a whole Apache Kafka: broker, command-line tools, Java clients
    clients-3.9/     the older Java clients, alone
    spark-kafka/     Spark's own Kafka connector, for `spark.jars`
    node/            gRPC for Node
    nats/            with --bench: a newer Debian's nats-server, where this one's cannot sync before it acknowledges

Runs on the standard library only, so it works before the virtual environment exists. A second run takes no time.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

JAVA_MIN = 17
KAFKA = "4.3.0"
PACKAGES = {"javac": "openjdk-17-jdk-headless", "mvn": "maven", "kcat": "kcat", "node": "nodejs", "npm": "npm"}
#: What bench/native.py measures us against.
BENCH_PACKAGES = {"nats-server": "nats-server", "redis-server": "redis-server"}
#: From 2.10 on NATS can sync before it acknowledges. Debian 12 has an older one, Debian 13 a newer.
NATS_MIN = (2, 10)
NATS_SOURCE = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} trixie main\n"

#: Directory in the cache → what Maven resolves into it, with everything those need.
JARS = {
    "kafka/libs": [
        ("org.apache.kafka", "kafka_2.13", KAFKA),
        ("org.apache.kafka", "kafka-tools", KAFKA),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ],
    "clients-3.9": [
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        ("com.fasterxml.jackson.core", "jackson-databind", "2.21.2"),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ],
    "spark-kafka": [
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    ],
}
#: Nothing but what is named there: the rest of what they need is in the pyspark wheel, in other versions.
ALONE = {"spark-kafka"}

#: The same for npm.
MODULES = {"node": ["@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1"]}

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>levada</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{without}
    </dependency>"""
WITHOUT_ANY = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def cache_dir() -> Path:
    """Where libraries and compiled test programs live, outside the source tree so that a fresh clone finds them."""
    return Path(os.environ.get("LEVADA_CACHE") or Path.home() / ".cache" / "levada").expanduser()


def java_version() -> int:
    """The major version of the JDK on the path; 0 if there is none or only a runtime."""
    if not shutil.which("javac"):
        return 0
    said = subprocess.run(["javac", "-version"], capture_output=True, text=True)
    found = re.search(r"javac (\d+)", said.stdout + said.stderr)
    return int(found[1]) if found else 0


def missing_packages(bench: bool = False) -> list[str]:
    wanted = PACKAGES | (BENCH_PACKAGES if bench else {})
    missing = [package for tool, package in wanted.items() if tool != "javac" and not shutil.which(tool)]
    if java_version() < JAVA_MIN:
        missing.insert(0, PACKAGES["javac"])
    return missing


def install(packages: list[str]) -> bool:
    """Install Debian packages if this user may; say how to do it otherwise."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print(
            f"missing: {', '.join(packages)}. Install with: sudo apt-get install -y {' '.join(packages)}",
            file=sys.stderr,
        )
        print("         (on macOS: brew install openjdk@17 maven kcat node)", file=sys.stderr)
        return False
    # A runlevel of 1 keeps Debian from starting the servers it installs.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "update", "-qq"], env=quiet, check=False)
    done = subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], env=quiet)
    return done.returncode == 0


def nats_version(program: str) -> tuple[int, ...]:
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return tuple(int(number) for number in re.findall(r"\d+", said)[:2])


def debian_mirror() -> str:
    """Where this machine has its own packages from."""
    known = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True, check=True
    ).stdout.split()
    return next((site for site in known if site.endswith("/debian")), known[0] if known else "")


def newer_nats() -> None:
    """Unpack the next Debian's nats-server into the cache, where the one installed is too old. Nothing else is installed from there."""
    here, target = shutil.which("nats-server"), cache_dir() / "nats"
    if (here and nats_version(here) >= NATS_MIN) or (target / "usr/sbin/nats-server").exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        (home / "lists/partial").mkdir(parents=True)
        (home / "archives/partial").mkdir(parents=True)
        (home / "sources.list").write_text(NATS_SOURCE.format(mirror=debian_mirror()))
        places = {"Etc::sourcelist": "sources.list", "State::lists": "lists", "Cache": "."}
        options = [f"-oDir::{name}={home / place}" for name, place in places.items()]
        apt = ["apt-get", *options, "-oDir::Etc::sourceparts=-", "-oAPT::Sandbox::User=root", "-qq"]
        for command in ([*apt, "update"], [*apt, "download", "nats-server"]):
            if subprocess.run(command, cwd=home).returncode:
                print("no newer nats-server could be had; its fsync rows will be left out", file=sys.stderr)
                return
        (package,) = home.glob("nats-server_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(package), str(home / "unpacked")], check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(home / "unpacked", target)


def wanted(directory: str) -> str:
    """What a finished directory's marker says; another text means the versions here have changed since."""
    wants = MODULES[directory] if directory in MODULES else [":".join(jar) for jar in JARS[directory]]
    return "\n".join(wants) + "\n"


def is_complete(directory: str) -> bool:
    marker = cache_dir() / directory / ".complete"
    return marker.exists() and marker.read_text() == wanted(directory)


def fetch(directory: str) -> None:
    """Resolve one directory beside its place and move it there whole, so that a stopped run leaves nothing half done."""
    target = cache_dir() / directory
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        found = (
            npm(MODULES[directory], Path(scratch))
            if directory in MODULES
            else maven(JARS[directory], Path(scratch), alone=directory in ALONE)
        )
        (found / ".complete").write_text(wanted(directory))
        shutil.rmtree(target, ignore_errors=True)
        found.rename(target)


def maven(wants: list[tuple[str, str, str]], scratch: Path, *, alone: bool) -> Path:
    """The jars, with everything they need or alone."""
    pom, jars = scratch / "pom.xml", scratch / "jars"
    without = WITHOUT_ANY if alone else ""
    pom.write_text(POM.format(dependencies="".join(DEPENDENCY.format(*jar, without=without) for jar in wants)))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
    subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=True)
    return jars


def npm(wants: list[str], scratch: Path) -> Path:
    """A directory with node_modules in it. No script of a package is run."""
    home = scratch / "home"
    home.mkdir()
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    subprocess.run(["npm", "install", "--prefix", str(home), *quiet, *wants], check=True)
    return home


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if something is missing")
    parser.add_argument("--bench", action="store_true", help="also nats-server and redis-server, for bench/native.py")
    parser.add_argument("--java", action="store_true", help="only a Java to run Spark with")
    options = parser.parse_args()
    if options.java:
        return 0 if java_version() >= JAVA_MIN or install([PACKAGES["javac"]]) else 1
    packages = missing_packages(options.bench)
    libraries = [directory for directory in (*JARS, *MODULES) if not is_complete(directory)]
    if options.check:
        print(f"packages missing: {packages or 'none'}; libraries missing: {libraries or 'none'}")
        return 1 if packages or libraries else 0
    if packages and not install(packages):
        return 1
    for directory in libraries:
        print(f"fetching {directory} into {cache_dir()}", flush=True)
        fetch(directory)
    if options.bench:
        newer_nats()
    return 0


if __name__ == "__main__":
    sys.exit(main())
