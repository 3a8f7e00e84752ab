import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;

/** Writes one batch in each codec, and the two transaction markers, as Kafka itself builds them. Argument: the file. */
public class Batches {
    public static void main(String[] args) throws Exception {
        try (FileChannel file = new FileOutputStream(args[0]).getChannel()) {
            long offset = 0;
            for (CompressionType codec : CompressionType.values()) {
                Compression compression = Compression.of(codec).build();
                write(file, MemoryRecords.withRecords((byte) 2, offset, compression, TimestampType.CREATE_TIME,
                    7L, (short) 1, (int) offset, 3, true, records()));
                offset += 1000;
            }
            for (ControlRecordType type : new ControlRecordType[] {ControlRecordType.COMMIT, ControlRecordType.ABORT}) {
                write(file, MemoryRecords.withEndTransactionMarker(offset, 1700000000000L, 3, 7L, (short) 1,
                    new EndTransactionMarker(type, 42)));
                offset += 1;
            }
        }
    }

    private static SimpleRecord[] records() {
        SimpleRecord[] records = new SimpleRecord[1000];
        for (int i = 0; i < records.length; i++) {
            byte[] key = i % 10 == 0 ? null : ("key-" + i).getBytes(StandardCharsets.UTF_8);
            byte[] value = i % 7 == 0 ? null : ("value-" + i + "-").repeat(20).getBytes(StandardCharsets.UTF_8);
            Header[] headers = i % 5 == 0
                ? new Header[] {new RecordHeader("é", new byte[] {1}), new RecordHeader("none", (byte[]) null)}
                : new Header[0];
            records[i] = new SimpleRecord(1700000000000L - i * 3L, key, value, headers);
        }
        return records;
    }

    private static void write(FileChannel file, MemoryRecords records) throws Exception {
        ByteBuffer buffer = records.buffer();
        while (buffer.hasRemaining()) file.write(buffer);
    }
}
