import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * What Kafka's leader makes of a client's batch. Each line of standard input has the batch in hex, the time, the name of
 * the topic's timestamp type, its bounds before and after, whether it is compacted, and its compression or "producer".
 * The answer is an error code and the places of wrong records, or 0 and the batch that is appended.
 */
public final class BatchValidation {
    private static final HexFormat HEX = HexFormat.of();
    private static final LogValidator.MetricsRecorder NO_METRICS = of(LogValidator.MetricsRecorder.class, null);

    private static <T> T of(Class<T> type, Object answer) {
        Object made = Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, given) -> answer);
        return type.cast(made);
    }

    private static byte[] appended(String[] words) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(words[0])));
        RecordBatch batch = records.batches().iterator().next();
        batch.ensureValid();
        CompressionType source = batch.compressionType();
        CompressionType target = words[6].equals("producer") ? source : CompressionType.forName(words[6]);
        Time time = of(Time.class, Long.valueOf(words[1]));
        TimestampType type = TimestampType.forName(words[2]);
        LogValidator validator = new LogValidator(
                records, new TopicPartition("t", 0), time, source, Compression.of(target).build(),
                Boolean.parseBoolean(words[5]), RecordBatch.CURRENT_MAGIC_VALUE, type,
                Long.parseLong(words[3]), Long.parseLong(words[4]), -1, AppendOrigin.CLIENT);
        ByteBuffer made = validator
                .validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), NO_METRICS, BufferSupplier.NO_CACHING)
                .validatedRecords().buffer();
        byte[] data = new byte[made.remaining()];
        made.get(data);
        return data;
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println("0 " + HEX.formatHex(appended(line.split(" "))));
            } catch (RecordValidationException wrong) {
                String places = wrong.recordErrors().stream().map(each -> "" + each.batchIndex)
                        .collect(Collectors.joining(","));
                System.out.println(Errors.forException(wrong.invalidException()).code() + " " + places);
            } catch (RuntimeException wrong) {
                System.out.println(Errors.forException(wrong).code() + " ");
            }
        }
    }
}
