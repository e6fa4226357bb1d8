import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.Rate;

/** Kafka's Rate, fed from standard input: "new", "record VALUE MS", "measure MS", which answers with a line. */
public class Rates {
    public static void main(String[] arguments) {
        MetricConfig config = new MetricConfig().samples(2).timeWindow(30_000, TimeUnit.MILLISECONDS);
        Rate rate = new Rate();
        Scanner input = new Scanner(System.in);
        while (input.hasNext()) {
            switch (input.next()) {
                case "new" -> rate = new Rate();
                case "record" -> rate.record(config, input.nextInt(), input.nextLong());
                default -> System.out.println(rate.measure(config, input.nextLong()));
            }
        }
    }
}
