import OpenAI from "openai";
for (const base of process.argv.slice(2)) {
  const client = new OpenAI({ baseURL: base + "/v1", apiKey: "key" });
  const messages = [{ role: "user", content: "hello" }];
  for await (const chunk of await client.chat.completions.create({ model: "m", stream: true, messages })) {
    console.log(chunk.id, chunk.created, chunk.choices[0].delta.content, chunk.choices[0].finish_reason);
  }
}
