import java.net.URI;
import java.net.http.*;

public class Fetch {
    public static void main(String[] words) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        for (int number = 0; number < 3; number++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(words[1] + "/page?" + number)).build();
            System.out.print(client.send(request, HttpResponse.BodyHandlers.ofString()).body());
        }
    }
}
