// One check of the official `openai` client per run: node client.mjs BASE_URL CHECK
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const [baseURL, name] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
const messages = [{ role: 'user', content: 'What is the capital of Japan?' }];
const request = { model: 'any', messages, temperature: 0, max_tokens: 32 };

async function streamed(body) {
  let text = '';
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
    text += chunk.choices[0].delta.content ?? '';
  }
  return text;
}

const checks = {
  async chat() {
    const answer = await client.chat.completions.create(request);
    assert.match(answer.choices[0].message.content, /Tokyo/);
    assert.equal(answer.choices[0].finish_reason, 'stop');
  },

  async stream() {
    const whole = await client.chat.completions.create(request);
    assert.equal(await streamed(request), whole.choices[0].message.content);
  },

  async completion() {
    const answer = await client.completions.create({ model: 'any', prompt: '1, 2, 3, 4,', max_tokens: 4, temperature: 0 });
    assert.match(answer.choices[0].text, /^ 5/);
    assert.equal(answer.usage.completion_tokens, 4);
  },

  async parallel() {
    const ask = (i) => streamed({ ...request, messages: [{ role: 'user', content: `Say the number ${i}.` }] });
    const together = await Promise.all(Array.from({ length: 32 }, (_, i) => ask(i)));
    assert.equal(together[31], await ask(31));
  },

  async choices() {
    const answer = await client.chat.completions.create({ ...request, n: 3, temperature: 1, seed: 7 });
    assert.equal(new Set(answer.choices.map((choice) => choice.message.content)).size, 3);
  },

  // Of a server that sends comments while it reads a long prompt.
  async patience() {
    const content = Array.from({ length: 700 }, (_, i) => i).join(' ');
    const text = await streamed({ ...request, messages: [{ role: 'user', content }], max_tokens: 4, user: 'node' });
    assert.notEqual(text, '');
  },

  async abort() {
    const stream = await client.chat.completions.create({ ...request, stream: true, max_tokens: 4000, ignore_eos: true });
    let chunks = 0;
    for await (const _ of stream) {
      chunks += 1;
      if (chunks === 3) stream.controller.abort();
    }
    assert.ok(chunks >= 3 && chunks < 100);
  },

  async error() {
    await assert.rejects(client.chat.completions.create({ ...request, temperature: 'hot' }), (error) => {
      assert.equal(error.status, 400);
      assert.equal(error.param, 'temperature');
      return true;
    });
  },
};

await checks[name]();
console.log(`${name} ok`);
