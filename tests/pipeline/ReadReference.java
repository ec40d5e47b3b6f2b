// Reads byte ranges of an object by HTTP, and what they make together as an Avro file, by Avro's Java library.
// Arguments: a URL, then ranges START+LENGTH; without ranges the whole object. Prints how many rows there are, then a
// row on each line: user, topic, partition, offset, index, and the entry's field `n`, separated by tabs.

import java.io.ByteArrayOutputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.file.SeekableByteArrayInput;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;

public final class ReadReference {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        ByteArrayOutputStream data = new ByteArrayOutputStream();
        if (arguments.length == 1) {
            data.write(get(client, arguments[0], null, 200));
        }
        for (int at = 1; at < arguments.length; at++) {
            String[] range = arguments[at].split("\\+");
            long start = Long.parseLong(range[0]);
            long last = start + Long.parseLong(range[1]) - 1;
            data.write(get(client, arguments[0], "bytes=" + start + "-" + last, 206));
        }
        List<String> lines = new ArrayList<>();
        try (DataFileReader<GenericRecord> reader =
                new DataFileReader<>(new SeekableByteArrayInput(data.toByteArray()), new GenericDatumReader<>())) {
            for (GenericRecord row : reader) {
                GenericRecord meta = (GenericRecord) row.get("_meta");
                lines.add(String.join(
                        "\t",
                        meta.get("user").toString(),
                        meta.get("topic").toString(),
                        meta.get("partition").toString(),
                        meta.get("offset").toString(),
                        meta.get("index").toString(),
                        String.valueOf(row.get("n"))));
            }
        }
        System.out.println(lines.size());
        lines.forEach(System.out::println);
    }

    private static byte[] get(HttpClient client, String url, String range, int expected) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url));
        if (range != null) {
            request.header("Range", range);
        }
        HttpResponse<byte[]> answer = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
        if (answer.statusCode() != expected) {
            throw new IllegalStateException(answer.statusCode() + ": " + new String(answer.body()));
        }
        return answer.body();
    }
}
