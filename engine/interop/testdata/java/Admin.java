// SPDX-License-Identifier: Apache-2.0

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin for many commands in one JVM. Standard input: a command a line, arguments between tabs. Each one's output,
 * errors included, comes between "<<<" and ">>>" lines.
 */
public class Admin {
    public static void main(String[] a) throws Exception {
        System.setErr(System.out);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] args = line.split("\t");
            System.out.println("<<<");
            try {
                MQAdminStartup.main0(args, null);
            } catch (Throwable t) {
                System.out.println("threw on " + Arrays.toString(args));
                t.printStackTrace();
            }
            System.out.println();
            System.out.println(">>>");
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
