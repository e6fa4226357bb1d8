import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.Utils;

/**
 * Kafka's own codec of message sets. Each line of standard input is a JSON object, answered by another:
 *
 * <p>{"write": {magic, compression, timestamp_type, base_offset, log_append_time, records: [[offset, timestamp, key,
 * value]]}} by {"hex"}; {"read": hex} by {"batches", "records"} or {"refused"}. Bytes are hex.
 */
public final class MessageSets {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    private static byte[] bytes(JsonNode hex) {
        return hex.isNull() ? null : HEX.parseHex(hex.asText());
    }

    private static String hex(ByteBuffer bytes) {
        return bytes == null ? null : HEX.formatHex(Utils.toArray(bytes));
    }

    private static ObjectNode write(JsonNode work) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(1 << 20),
                (byte) work.get("magic").asInt(),
                Compression.of(work.get("compression").asText()).build(),
                TimestampType.forName(work.get("timestamp_type").asText()),
                work.get("base_offset").asLong(),
                work.get("log_append_time").asLong());
        for (JsonNode row : work.get("records")) {
            builder.appendWithOffset(row.get(0).asLong(), row.get(1).asLong(), bytes(row.get(2)), bytes(row.get(3)));
        }
        return JSON.createObjectNode().put("hex", hex(builder.build().buffer()));
    }

    private static ObjectNode read(String data) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode batches = answer.putArray("batches");
        ArrayNode records = answer.putArray("records");
        int read = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(data))).batches()) {
            batch.ensureValid();
            read += batch.sizeInBytes();
            ObjectNode row = batches.addObject();
            row.put("magic", batch.magic()).put("last_offset", batch.lastOffset());
            row.put("size", batch.sizeInBytes()).put("compression", batch.compressionType().name);
            row.put("timestamp_type", batch.timestampType().name).put("max_timestamp", batch.maxTimestamp());
            for (Record record : batch) {
                record.ensureValid();
                ArrayNode fields = records.addArray().add(record.offset()).add(record.timestamp());
                fields.add(hex(record.key())).add(hex(record.value()));
            }
        }
        return answer.put("bytes", read);
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode row = JSON.readTree(line);
            ObjectNode answer;
            try {
                answer = row.has("write") ? write(row.get("write")) : read(row.get("read").asText());
            } catch (KafkaException | IllegalArgumentException | IllegalStateException refused) {
                answer = JSON.createObjectNode().put("refused", refused.toString());
            }
            System.out.println(answer);
        }
    }
}
