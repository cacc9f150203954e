import java.security.SecureRandom;
import java.util.*;

public class Values {
    public static void main(String[] words) throws Exception {
        System.out.println(UUID.randomUUID() + " " + new SecureRandom().nextLong() + " " + ProcessHandle.current().pid());
        if (words.length > 0 && words[0].equals("time")) {
            System.out.println(System.currentTimeMillis() + " " + System.nanoTime());
        }
        if (words.length > 0 && words[0].equals("random")) {
            System.out.println(Math.random() + " " + new Random().nextLong() + " " + new Object().hashCode() + " " + Set.of("a", "b", "c", "d"));
        }
        Thread.sleep(300);
        Thread[] threads = new Thread[3];
        String[] results = new String[3];
        for (int i = 0; i < 3; i++) { int number = i; threads[i] = new Thread(() -> results[number] = "done " + number); threads[i].start(); }
        for (Thread thread : threads) thread.join();
        System.out.println(String.join(", ", results));
        java.nio.file.Files.writeString(java.nio.file.Path.of("out/values.txt"), String.join("\n", results));
    }
}
