import java.io.File;
import java.io.FileOutputStream;
import java.util.Map;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A ResourceManager and a NodeManager on loopback, until standard input ends. The argument is the file for their configuration. */
public final class YarnCluster {
    private static final Map<String, String> SETTINGS =
            Map.of(
                    "yarn.scheduler.capacity.root.queues", "default",
                    "yarn.scheduler.capacity.root.default.capacity", "100",
                    "yarn.scheduler.capacity.maximum-am-resource-percent", "0.5",
                    "yarn.scheduler.minimum-allocation-mb", "512",
                    "yarn.nodemanager.resource.memory-mb", "8192",
                    "yarn.nodemanager.vmem-check-enabled", "false",
                    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");

    public static void main(String[] arguments) throws Exception {
        var settings = new YarnConfiguration();
        SETTINGS.forEach(settings::set);
        var cluster = new MiniYARNCluster("yarn", 1, 1, 1);
        cluster.init(settings);
        cluster.start();
        var unfinished = new File(arguments[0] + ".part");
        try (var out = new FileOutputStream(unfinished)) {
            cluster.getConfig().writeXml(out);
        }
        if (!unfinished.renameTo(new File(arguments[0]))) {
            throw new IllegalStateException("cannot write " + arguments[0]);
        }
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
