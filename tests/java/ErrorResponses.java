import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.utils.Utils;

/**
 * Kafka's own answers to requests that it cannot handle. Each line of standard input has a request's API key, version,
 * error code and body, and is answered by the body of the response. Bodies are hex.
 */
public final class ErrorResponses {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            ByteBufferAccessor body = new ByteBufferAccessor(ByteBuffer.wrap(HEX.parseHex(words[3])));
            ApiKeys api = ApiKeys.forId(Integer.parseInt(words[0]));
            AbstractRequest request = AbstractRequest.parseRequest(api, version, body).request;
            Throwable error = Errors.forCode(Short.parseShort(words[2])).exception();
            ByteBuffer answer = MessageUtil.toByteBufferAccessor(request.getErrorResponse(0, error).data(), version)
                    .buffer();
            System.out.println(HEX.formatHex(Utils.toArray(answer)));
        }
    }
}
