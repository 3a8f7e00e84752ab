/*
 * Apache Kafka's Java clients, told what to do line by line; tests/support/driver.py has the other end.
 *
 * - Compiled and run once with kafka-clients 3.9 and once with 4.3: only what both have is used.
 * - `tool` runs the main method of one of Kafka's command-line tools in this JVM, with its output caught and its exit
 *   turned into an answer, so that thirty tools cost one start of a JVM. The tools themselves are unmodified.
 */
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

public class Driver {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long END_MS = 20_000;
    static final Map<String, Member> members = new HashMap<>();
    static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever a library prints must not get between the answers
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", JSON.valueToTree(call(JSON.readTree(line))));
            } catch (Throwable error) {
                Throwable cause = error;
                while ((cause instanceof ExecutionException || cause.getClass() == org.apache.kafka.common.KafkaException.class)
                        && cause.getCause() != null) cause = cause.getCause();
                cause.printStackTrace();
                String name = cause instanceof ApiException ? Errors.forException(cause).name() : cause.getClass().getSimpleName();
                answer.put("error", name).put("message", String.valueOf(cause.getMessage()));
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // background members end with the process
    }

    static Object call(JsonNode request) throws Exception {
        String at = request.path("at").asText();
        String topic = request.path("topic").asText();
        String name = request.path("name").asText();
        switch (request.get("do").asText()) {
            case "produce": return produce(at, topic, request);
            case "consume": return consume(at, topic, request);
            case "offsets_at": return offsetsAt(at, topic, request.get("timestamp").asLong());
            case "bounds": return bounds(at, topic);
            case "join": members.put(name, new Member(memberConfig(at, request), topic)); return null;
            case "look": return members.get(name).look();
            case "leave": members.remove(name).leave(); return null;
            case "commit": return admin(at, admin -> admin.alterConsumerGroupOffsets(request.get("group").asText(), offsets(topic, request.get("offsets"))).all().get());
            case "committed": return committed(at, topic, request.get("group").asText());
            case "create": return admin(at, admin -> create(admin, topic, request));
            case "expand": return admin(at, admin -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(request.get("partitions").asInt()))).all().get());
            case "delete": return admin(at, admin -> admin.deleteTopics(List.of(topic)).all().get());
            case "topics": return admin(at, Driver::topics);
            case "configs": return admin(at, admin -> configs(admin, topic));
            case "alter": return admin(at, admin -> alter(admin, topic, request.get("config")));
            case "trim": return admin(at, admin -> trim(admin, topic, request.get("before")));
            case "open": open(at, name, request); return null;
            case "begin": producers.get(name).beginTransaction(); return null;
            case "send": sendAll(producers.get(name), topic, request.get("records")); return null;
            case "send_offsets":
                producers.get(name).sendOffsetsToTransaction(offsets(topic, request.get("offsets")), new ConsumerGroupMetadata(request.get("group").asText()));
                return null;
            case "commit_transaction": producers.get(name).commitTransaction(); return null;
            case "abort_transaction": producers.get(name).abortTransaction(); return null;
            case "close": producers.remove(name).close(Duration.ZERO); return null;
            case "tool": return tool(request);
            default: throw new IllegalArgumentException("no such call: " + request);
        }
    }

    // ---- producing

    static Properties client(String at) {
        Properties config = new Properties();
        config.put("bootstrap.servers", at);
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("reconnect.backoff.ms", "20");
        config.put("reconnect.backoff.max.ms", "100");
        config.put("retry.backoff.ms", "20");
        return config;
    }

    static List<List<Long>> produce(String at, String topic, JsonNode request) throws Exception {
        Properties config = client(at);
        int batch = request.get("batch").asInt();
        config.put("acks", "all");
        config.put("compression.type", request.get("codec").asText());
        config.put("enable.idempotence", request.get("idempotent").asText());
        config.put("linger.ms", batch > 0 ? "0" : "5");
        if (batch > 0) config.put("batch.size", String.valueOf(batch * 64));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            return sendAll(producer, topic, request.get("records"));
        }
    }

    static List<List<Long>> sendAll(KafkaProducer<byte[], byte[]> producer, String topic, JsonNode records) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode fields : records) {
            Integer partition = fields.get("partition").isNull() ? null : fields.get("partition").asInt();
            Long timestamp = fields.get("timestamp").isNull() ? null : fields.get("timestamp").asLong();
            ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(topic, partition, timestamp, bytes(fields.get("key")), bytes(fields.get("value")));
            for (JsonNode header : fields.get("headers")) record.headers().add(header.get(0).asText(), bytes(header.get(1)));
            sent.add(producer.send(record));
        }
        producer.flush();
        List<List<Long>> places = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata place = future.get(30, TimeUnit.SECONDS);
            places.add(List.of((long) place.partition(), place.offset()));
        }
        return places;
    }

    static void open(String at, String name, JsonNode request) {
        Properties config = client(at);
        config.put("transactional.id", request.get("id").asText());
        config.put("transaction.timeout.ms", request.get("timeout_ms").asText());
        config.put("linger.ms", "0");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config);
        producers.put(name, producer);
        producer.initTransactions();
    }

    // ---- consuming

    static KafkaConsumer<byte[], byte[]> reader(String at, boolean committed, String reset) {
        Properties config = client(at);
        config.put("isolation.level", committed ? "read_committed" : "read_uncommitted");
        config.put("auto.offset.reset", reset);
        config.put("fetch.max.wait.ms", "50");
        return new KafkaConsumer<>(config);
    }

    static List<TopicPartition> places(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        List<TopicPartition> places = new ArrayList<>();
        for (PartitionInfo found : consumer.partitionsFor(topic)) places.add(new TopicPartition(topic, found.partition()));
        return places;
    }

    static List<ObjectNode> consume(String at, String topic, JsonNode request) {
        JsonNode start = request.get("start");
        try (KafkaConsumer<byte[], byte[]> consumer = reader(at, request.get("committed").asBoolean(), start.isNull() ? "earliest" : "none")) {
            Map<TopicPartition, Long> first = new HashMap<>();
            if (start.isNull()) for (TopicPartition place : places(consumer, topic)) first.put(place, 0L);
            else start.fields().forEachRemaining(entry -> first.put(new TopicPartition(topic, Integer.parseInt(entry.getKey())), entry.getValue().asLong()));
            consumer.assign(first.keySet());
            first.forEach(consumer::seek);
            Map<TopicPartition, Long> ends = consumer.endOffsets(first.keySet());
            List<ObjectNode> found = new ArrayList<>();
            long deadline = System.currentTimeMillis() + END_MS;
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                if (System.currentTimeMillis() > deadline) throw new IllegalStateException(topic + " has not ended: " + ends);
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) found.add(seen(record));
            }
            return found;
        }
    }

    static Map<Integer, Long> offsetsAt(String at, String topic, long timestamp) {
        try (KafkaConsumer<byte[], byte[]> consumer = reader(at, false, "earliest")) {
            Map<TopicPartition, Long> asked = new HashMap<>();
            for (TopicPartition place : places(consumer, topic)) asked.put(place, timestamp);
            Map<Integer, Long> found = new HashMap<>();
            for (Map.Entry<TopicPartition, OffsetAndTimestamp> entry : consumer.offsetsForTimes(asked).entrySet())
                found.put(entry.getKey().partition(), entry.getValue() == null ? null : entry.getValue().offset());
            return found;
        }
    }

    static Map<Integer, List<Long>> bounds(String at, String topic) {
        try (KafkaConsumer<byte[], byte[]> consumer = reader(at, false, "earliest")) {
            List<TopicPartition> places = places(consumer, topic);
            Map<TopicPartition, Long> low = consumer.beginningOffsets(places), high = consumer.endOffsets(places);
            Map<Integer, List<Long>> found = new HashMap<>();
            for (TopicPartition place : places) found.put(place.partition(), List.of(low.get(place), high.get(place)));
            return found;
        }
    }

    static Properties memberConfig(String at, JsonNode request) {
        Properties config = client(at);
        int session = request.get("session_ms").asInt();
        config.put("group.id", request.get("group").asText());
        config.put("session.timeout.ms", String.valueOf(session));
        config.put("heartbeat.interval.ms", String.valueOf(session / 6));
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", request.path("commit").asText("true"));
        config.put("auto.commit.interval.ms", "100");
        config.put("metadata.max.age.ms", "500");
        config.put("fetch.max.wait.ms", "50");
        if (request.hasNonNull("instance")) config.put("group.instance.id", request.get("instance").asText());
        if (request.path("assignor").asText().equals("cooperative-sticky"))
            config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        return config;
    }

    /** A consumer of a group, polled until told to leave. */
    static class Member extends Thread {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<ObjectNode> records = Collections.synchronizedList(new ArrayList<>());
        volatile List<Integer> assigned = List.of();
        volatile boolean stopping = false;

        Member(Properties config, String topic) {
            consumer = new KafkaConsumer<>(config);
            consumer.subscribe(List.of(topic));
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            while (!stopping) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) records.add(seen(record));
                List<Integer> now = new ArrayList<>();
                for (TopicPartition place : consumer.assignment()) now.add(place.partition());
                assigned = now;
            }
            consumer.close();
        }

        Map<String, Object> look() {
            synchronized (records) {
                return Map.of("assigned", assigned, "records", new ArrayList<>(records));
            }
        }

        void leave() throws InterruptedException {
            stopping = true;
            join(10_000);
        }
    }

    // ---- administering

    interface Work { Object with(Admin admin) throws Exception; }

    static final Map<String, Admin> admins = new HashMap<>();

    /** One admin client is kept per broker; the last one only, because brokers come and go with the tests. */
    static Object admin(String at, Work work) throws Exception {
        if (!admins.containsKey(at)) {
            admins.values().forEach(old -> old.close(Duration.ZERO));
            admins.clear();
            Properties config = client(at);
            config.put("default.api.timeout.ms", "20000");
            config.put("request.timeout.ms", "10000");
            admins.put(at, Admin.create(config));
        }
        return work.with(admins.get(at));
    }

    static Object create(Admin admin, String topic, JsonNode request) throws Exception {
        Map<String, String> config = new HashMap<>();
        request.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        NewTopic wanted = new NewTopic(topic, request.get("partitions").asInt(), (short) 1).configs(config);
        return admin.createTopics(List.of(wanted)).all().get();
    }

    static Object topics(Admin admin) throws Exception {
        Map<String, Integer> found = new HashMap<>();
        Collection<String> names = admin.listTopics().names().get();
        for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values())
            found.put(topic.name(), topic.partitions().size());
        return found;
    }

    static Object configs(Admin admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        Map<String, String> found = new HashMap<>();
        for (ConfigEntry entry : config.entries()) found.put(entry.name(), entry.value());
        return found;
    }

    static Object alter(Admin admin, String topic, JsonNode config) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        config.fields().forEachRemaining(entry -> changes.add(
            new AlterConfigOp(new ConfigEntry(entry.getKey(), entry.getValue().asText()), AlterConfigOp.OpType.SET)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    static Object trim(Admin admin, String topic, JsonNode before) throws Exception {
        Map<TopicPartition, RecordsToDelete> wanted = new HashMap<>();
        before.fields().forEachRemaining(entry -> wanted.put(
            new TopicPartition(topic, Integer.parseInt(entry.getKey())), RecordsToDelete.beforeOffset(entry.getValue().asLong())));
        return admin.deleteRecords(wanted).all().get();
    }

    static Object committed(String at, String topic, String group) throws Exception {
        return admin(at, admin -> {
            Map<TopicPartition, OffsetAndMetadata> kept = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            int count = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            Map<Integer, Long> found = new HashMap<>();
            for (int index = 0; index < count; index++) {
                OffsetAndMetadata offset = kept.get(new TopicPartition(topic, index));
                found.put(index, offset == null ? null : offset.offset());
            }
            return found;
        });
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets(String topic, JsonNode offsets) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        offsets.fields().forEachRemaining(entry -> found.put(
            new TopicPartition(topic, Integer.parseInt(entry.getKey())), new OffsetAndMetadata(entry.getValue().asLong())));
        return found;
    }

    // ---- Kafka's command-line tools

    static class Exited extends RuntimeException {
        final int status;

        Exited(int status, String message) {
            super(message);
            this.status = status;
        }
    }

    /** Run a tool's main method. The first exit counts, since tools catch what we throw there and exit again. */
    static Object tool(JsonNode request) throws Exception {
        List<String> arguments = new ArrayList<>();
        request.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        ByteArrayOutputStream out = new ByteArrayOutputStream(), errors = new ByteArrayOutputStream();
        PrintStream usualOut = System.out, usualErrors = System.err;
        InputStream usualIn = System.in;
        List<Integer> exits = Collections.synchronizedList(new ArrayList<>());
        List<Runnable> hooks = Collections.synchronizedList(new ArrayList<>());
        Exit.Procedure leave = (code, message) -> {
            exits.add(code);
            throw new Exited(code, message);
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(request.path("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        try {
            Class.forName(request.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace();
                exits.add(1);
            }
        } finally {
            hooks.forEach(Runnable::run); // what the JVM would do at its end
            System.out.flush();
            System.setOut(usualOut);
            System.setErr(usualErrors);
            System.setIn(usualIn);
        }
        int status = exits.isEmpty() ? 0 : exits.get(0);
        return Map.of("status", status, "out", out.toString(StandardCharsets.UTF_8), "errors", errors.toString(StandardCharsets.UTF_8));
    }

    // ---- records as JSON: bytes are latin-1 text

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : text.asText().getBytes(StandardCharsets.ISO_8859_1);
    }

    static String text(byte[] data) {
        return data == null ? null : new String(data, StandardCharsets.ISO_8859_1);
    }

    static ObjectNode seen(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode fields = JSON.createObjectNode();
        fields.put("partition", record.partition()).put("offset", record.offset()).put("timestamp", record.timestamp());
        fields.put("key", text(record.key())).put("value", text(record.value()));
        ArrayNode headers = fields.putArray("headers");
        for (Header header : record.headers()) headers.addArray().add(header.key()).add(text(header.value()));
        return fields;
    }
}
