/*
 * What Kafka's own performance tools do not measure: end-to-end latency at a steady rate, the latency of one produce after
 * another, and transactions per second. Prints one JSON line. Both brokers get exactly this.
 *
 *   Bench latency      <bootstrap> <topic> <messages per second> <seconds to warm up> <seconds to measure>
 *   Bench sync         <bootstrap> <topic> <count to warm up> <count to measure>
 *   Bench transactions <bootstrap> <topic> <producers> <seconds to warm up> <seconds to measure>
 */
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Bench {
    static final int RECORD_BYTES = 100;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "latency": latency(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]), Integer.parseInt(args[5])); break;
            case "sync": sync(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4])); break;
            case "transactions": transactions(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]), Integer.parseInt(args[5])); break;
            default: throw new IllegalArgumentException(args[0]);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static Properties client(String bootstrap) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("acks", "all");
        config.put("linger.ms", "0");
        for (String part : new String[] {"key", "value"}) {
            config.put(part + ".serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
            config.put(part + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        }
        return config;
    }

    /** From the moment a record should have been sent to the moment poll returned it: a late send counts as latency. */
    static void latency(String bootstrap, String topic, int rate, int warmSeconds, int seconds) throws Exception {
        int warm = rate * warmSeconds, total = warm + rate * seconds;
        long[] took = new long[total];
        AtomicLong received = new AtomicLong();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(client(bootstrap));
        List<TopicPartition> places = new ArrayList<>();
        for (PartitionInfo found : consumer.partitionsFor(topic)) places.add(new TopicPartition(topic, found.partition()));
        consumer.assign(places);
        consumer.seekToEnd(places);
        for (TopicPartition place : places) consumer.position(place);
        Thread reader = new Thread(() -> {
            while (received.get() < total) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    long now = System.nanoTime();
                    ByteBuffer value = ByteBuffer.wrap(record.value());
                    took[value.getInt(8)] = now - value.getLong(0);
                    received.incrementAndGet();
                }
            }
        });
        reader.start();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(client(bootstrap));
        producer.partitionsFor(topic);
        long start = System.nanoTime() + 200_000_000L;
        for (int index = 0; index < total; index++) {
            long due = start + (long) index * 1_000_000_000L / rate;
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) LockSupport.parkNanos(left);
            byte[] value = new byte[RECORD_BYTES];
            ByteBuffer.wrap(value).putLong(0, due).putInt(8, index);
            producer.send(new ProducerRecord<>(topic, value));
        }
        producer.flush();
        reader.join(30_000);
        if (received.get() < total) throw new IllegalStateException("only " + received.get() + " of " + total + " came back");
        print(Arrays.copyOfRange(took, warm, total));
    }

    /** One record at a time, each acknowledged before the next is sent. */
    static void sync(String bootstrap, String topic, int warm, int count) throws Exception {
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(client(bootstrap));
        long[] took = new long[count];
        for (int index = -warm; index < count; index++) {
            long start = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, 0, null, new byte[RECORD_BYTES])).get();
            if (index >= 0) took[index] = System.nanoTime() - start;
        }
        print(took);
    }

    /** Transactions of ten records over two partitions; each producer commits one after the other. */
    static void transactions(String bootstrap, String topic, int producers, int warmSeconds, int seconds) throws Exception {
        AtomicLong committed = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        long end = System.nanoTime() + (warmSeconds + seconds) * 1_000_000_000L;
        for (int number = 0; number < producers; number++) {
            Properties config = client(bootstrap);
            config.put("transactional.id", topic + "-" + number);
            Thread thread = new Thread(() -> {
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config);
                producer.initTransactions();
                while (System.nanoTime() < end) {
                    producer.beginTransaction();
                    for (int index = 0; index < 10; index++) producer.send(new ProducerRecord<>(topic, index % 2, null, new byte[RECORD_BYTES]));
                    producer.commitTransaction();
                    committed.incrementAndGet();
                }
            });
            threads.add(thread);
            thread.start();
        }
        Thread.sleep(warmSeconds * 1000L);
        long before = committed.get(), start = System.nanoTime();
        for (Thread thread : threads) thread.join();
        double took = (System.nanoTime() - start) / 1e9;
        System.out.printf("{\"per_second\": %.2f}%n", (committed.get() - before) / took);
    }

    static void print(long[] nanos) {
        Arrays.sort(nanos);
        System.out.printf("{\"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"max_ms\": %.4f}%n",
            at(nanos, 0.50), at(nanos, 0.99), at(nanos, 0.999), nanos[nanos.length - 1] / 1e6);
    }

    static double at(long[] sorted, double quantile) {
        return sorted[Math.min(sorted.length - 1, (int) (sorted.length * quantile))] / 1e6;
    }
}
