// SPDX-License-Identifier: Apache-2.0

import java.io.*;
import java.util.*;

/**
 * What java.util.Properties makes of texts. Standard input: a text a line, in hex. Standard output: a line for each,
 * key=value pairs sorted and in hex of UTF-8, or "error".
 */
public class Props {
    public static void main(String[] a) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            byte[] text = new byte[line.length() / 2];
            for (int i = 0; i < text.length; i++) text[i] = (byte) Integer.parseInt(line.substring(2 * i, 2 * i + 2), 16);
            Properties p = new Properties();
            try {
                p.load(new ByteArrayInputStream(text));
            } catch (IllegalArgumentException e) {
                out.println("error");
                continue;
            }
            StringJoiner joined = new StringJoiner(" ");
            for (Map.Entry<String, String> e : new TreeMap<>(hexed(p)).entrySet()) joined.add(e.getKey() + "=" + e.getValue());
            out.println(joined);
        }
        out.flush();
    }

    static Map<String, String> hexed(Properties p) throws Exception {
        Map<String, String> m = new HashMap<>();
        for (String k : p.stringPropertyNames()) m.put(hex(k), hex(p.getProperty(k)));
        return m;
    }

    static String hex(String s) throws Exception {
        StringBuilder b = new StringBuilder();
        for (byte x : s.getBytes("UTF-8")) b.append(String.format("%02x", x));
        return b.toString();
    }
}
