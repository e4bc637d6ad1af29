// A day in the life of the TypeScript SDK, run by test_typescript_sdk.py: `node typescript_flow.mjs URL MODEL`.
//
// The test copies this file beside a `node_modules` that has the SDK, so that the import below is the one a user
// writes. Every function is one story with an agent of its own; the first that fails ends the program.

import assert from "node:assert/strict";
import Letta, { ConflictError, NotFoundError } from "@letta-ai/letta-client";

const [url, model] = process.argv.slice(2);
const client = new Letta({ baseURL: url, maxRetries: 0 });

const DICE = `
def roll_dice(sides: int) -> str:
    """Roll a die.

    Args:
        sides (int): How many sides it has.
    """
    return f"rolled a {sides}-sided die"
`;

const tool = await client.tools.upsert({ source_code: DICE });

async function newAgent(given = {}) {
  const agent = await client.agents.create({ model, tool_ids: [tool.id], include_base_tools: false, ...given });
  return agent.id;
}

async function waitingForApproval() {
  const agent = await newAgent({ tool_rules: [{ type: "requires_approval", tool_name: "roll_dice" }] });
  const response = await client.agents.messages.create(agent, { messages: said("call roll_dice with 6") });
  assert.equal(response.stop_reason.stop_reason, "requires_approval");
  const [request] = ofType(response.messages, "approval_request_message");
  return { agent, request: request.id, call: request.tool_call.tool_call_id };
}

const said = (content) => [{ role: "user", content }];
const answer = (call, given) => [{ type: "approval", approvals: [{ type: "approval", tool_call_id: call, ...given }] }];
const ofType = (messages, kind) => messages.filter((message) => message.message_type === kind);
const idsOf = (messages) => messages.map((message) => message.id);

async function allOf(pagesOrStream) {
  const items = [];
  for await (const item of await pagesOrStream) items.push(item);
  return items;
}

const stories = {
  async "a tool is created once and found by its name"() {
    assert.equal(tool.name, "roll_dice");
    assert.equal(tool.json_schema.parameters.properties.sides.type, "integer");
    const again = await client.tools.upsert({ source_code: DICE, tags: ["games"] });
    assert.deepEqual([again.id, again.tags], [tool.id, ["games"]]);
    assert.deepEqual(idsOf(await allOf(client.tools.list({ name: "roll_dice" }))), [tool.id]);
  },

  async "an agent answers with its tool"() {
    const agent = await newAgent({ name: "New Friend", memory_blocks: [{ label: "human", value: "Ada" }] });
    const kept = await client.agents.retrieve(agent, { include: ["agent.blocks", "agent.tools"] });
    assert.deepEqual([kept.name, kept.tools[0].name, kept.blocks[0].value], ["New Friend", "roll_dice", "Ada"]);
    const response = await client.agents.messages.create(agent, { messages: said("call roll_dice with 16") });
    assert.equal(response.stop_reason.stop_reason, "end_turn");
    assert.equal(ofType(response.messages, "tool_return_message")[0].tool_return, "rolled a 16-sided die");
    assert.equal(response.usage.step_count, 2);
  },

  async "a step stream has whole messages"() {
    const messages = said('/call roll_dice {"sides": 6}\n/then /say It fell.');
    const chunks = await allOf(client.agents.messages.create(await newAgent(), { messages, streaming: true }));
    assert.equal(chunks[0].message_type, "ping");
    assert.match(chunks[0].run_id, /^run-/);
    const calls = ofType(chunks, "tool_call_message");
    assert.deepEqual(calls.map((one) => JSON.parse(one.tool_call.arguments)), [{ sides: 6 }]);
    assert.equal(ofType(chunks, "tool_return_message")[0].tool_return, "rolled a 6-sided die");
    assert.deepEqual(ofType(chunks, "assistant_message").map((one) => one.content), ["It fell."]);
    assert.deepEqual(chunks.slice(-2).map((one) => one.message_type), ["stop_reason", "usage_statistics"]);
  },

  async "a token stream adds up to what is listed"() {
    const agent = await newAgent();
    const chunks = await allOf(
      client.agents.messages.create(agent, {
        messages: said('/say one two three\n/call roll_dice {"sides": 20}\n/then /say four five six'),
        streaming: true,
        stream_tokens: true,
      }),
    );
    const spoken = ofType(chunks, "assistant_message");
    assert.ok(spoken.length >= 6);
    assert.equal(spoken.map((one) => one.content).join(""), "one two threefour five six");
    const calls = ofType(chunks, "tool_call_message");
    assert.deepEqual(JSON.parse(calls.map((one) => one.tool_call.arguments ?? "").join("")), { sides: 20 });
    const listed = ofType(await allOf(client.agents.messages.list(agent)), "assistant_message");
    assert.deepEqual(listed.map((one) => one.content), ["one two three", "four five six"]);
    assert.deepEqual(new Set(idsOf(listed)), new Set(idsOf(spoken)));
  },

  async "messages are paged by cursor"() {
    const agent = await newAgent();
    for (const number of [0, 1, 2, 3]) {
      await client.agents.messages.create(agent, { messages: said(`/no-reasoning\n/say answer ${number}`) });
    }
    const page = async (query) => idsOf((await client.agents.messages.list(agent, query)).getPaginatedItems());
    const everything = await page({ order: "asc" });
    assert.equal(new Set(everything).size, 9);
    assert.deepEqual(idsOf(await allOf(client.agents.messages.list(agent, { order: "asc", limit: 2 }))), everything);
    assert.deepEqual(await page({ order: "asc", after: everything[4] }), everything.slice(5));
    assert.deepEqual(await page({ before: everything[4], limit: 2 }), everything.slice(2, 4));
  },

  async "an approved call is made"() {
    const { agent, call } = await waitingForApproval();
    const response = await client.agents.messages.create(agent, { messages: answer(call, { approve: true }) });
    assert.equal(ofType(response.messages, "tool_return_message")[0].tool_return, "rolled a 6-sided die");
    assert.equal(response.stop_reason.stop_reason, "end_turn");
  },

  async "a denied call is not made, and the model hears why"() {
    const { agent, call } = await waitingForApproval();
    const denial = answer(call, { approve: false, reason: "no games" });
    const chunks = await allOf(client.agents.messages.create(agent, { messages: denial, streaming: true }));
    assert.equal(ofType(chunks, "tool_return_message")[0].status, "error");
    assert.match(ofType(chunks, "assistant_message")[0].content, /no games/);
  },

  async "a new message must wait for the approval"() {
    const { agent, call, request } = await waitingForApproval();
    await assert.rejects(client.agents.messages.create(agent, { messages: said("hello?") }), (refused) => {
      assert.ok(refused instanceof ConflictError);
      assert.equal(refused.error.detail.pending_request_id, request);
      return true;
    });
    const { pending_approval: pending } = await client.agents.retrieve(agent, { include: ["agent.pending_approval"] });
    assert.equal(pending.tool_call.tool_call_id, call);
  },

  async "a tool of the client is called by the client"() {
    const conversation = await client.conversations.create({ agent_id: await newAgent() });
    const client_tools = [{ name: "look", description: "Look.", parameters: { type: "object", properties: {} } }];
    const send = (messages) =>
      allOf(client.conversations.messages.create(conversation.id, { messages, client_tools, stream_tokens: true }));
    const asked = ofType(await send(said("/call look {}")), "approval_request_message");
    const tool_call_id = asked[0].tool_call.tool_call_id;
    const seen = { type: "tool", tool_call_id, status: "success", tool_return: [{ type: "text", text: "a cat" }] };
    const told = await send([{ type: "approval", approvals: [seen] }]);
    const report = ofType(told, "assistant_message").map((one) => one.content).join("");
    assert.equal(report, "look returned: a cat");
  },

  async "conversations of one agent are apart, and can be forked and deleted"() {
    const agent = await newAgent();
    const [one, two] = [
      await client.conversations.create({ agent_id: agent, summary: "one" }),
      await client.conversations.create({ agent_id: agent, summary: "two" }),
    ];
    await allOf(client.conversations.messages.create(one.id, { messages: said("/no-reasoning\n/say in one") }));
    const kindsIn = async (conversation) =>
      (await allOf(client.conversations.messages.list(conversation.id, { order: "asc" }))).map((m) => m.message_type);
    assert.deepEqual(await kindsIn(one), ["system_message", "user_message", "assistant_message"]);
    assert.deepEqual(await kindsIn(two), ["system_message"]);
    const fork = await client.conversations.fork(one.id);
    assert.equal((await client.conversations.retrieve(fork.id)).in_context_message_ids.length, 3);
    await client.conversations.update(two.id, { summary: "second" });
    const listed = await client.conversations.list({ agent_id: agent, order_by: "last_run_completion" });
    assert.deepEqual(new Set(listed.map((each) => each.summary)), new Set(["one", "second", null]));
    await client.conversations.delete(two.id);
    await assert.rejects(client.conversations.retrieve(two.id), NotFoundError);
  },

  async "a run is read, and its stream read again"() {
    const agent = await newAgent();
    const asked = { messages: said("/say a b c"), streaming: true, stream_tokens: true, background: true };
    const chunks = await allOf(client.agents.messages.create(agent, asked));
    const run = await client.runs.retrieve(chunks[0].run_id);
    assert.deepEqual([run.status, run.stop_reason, run.agent_id], ["completed", "end_turn", agent]);
    assert.deepEqual(idsOf(await allOf(client.runs.list({ agent_id: agent }))), [run.id]);
    assert.deepEqual(await allOf(client.runs.messages.stream(run.id, { starting_after: 0 })), chunks);
    assert.equal((await allOf(client.runs.messages.list(run.id)))[0].message_type, "user_message");
    assert.deepEqual((await allOf(client.runs.steps.list(run.id))).map((step) => step.status), ["success"]);
    assert.ok((await client.runs.usage.retrieve(run.id)).total_tokens > 0);
  },

  async "a late answer is given to the SDK's own second try, and the turn happens once"() {
    const agent = await newAgent();
    const impatient = { timeout: 1000, maxRetries: 8 };
    const late = await client.agents.messages.create(agent, { messages: said("/slow 40\n/tokens 40") }, impatient);
    assert.match(ofType(late.messages, "assistant_message")[0].content, /word40$/);
    await assert.rejects(client.agents.messages.create(agent, { messages: said("/fail llm_error") }, { maxRetries: 2 }));
    assert.equal((await allOf(client.runs.list({ agent_id: agent }))).length, 2);
  },

  async "a run is cancelled while it speaks"() {
    const conversation = await client.conversations.create({ agent_id: await newAgent() });
    const stream = await client.conversations.messages.create(conversation.id, {
      messages: said("/slow 100\n/tokens 2000"),
      stream_tokens: true,
      background: true,
    });
    let run, stopped;
    let asked = false;
    for await (const chunk of stream) {
      run ??= chunk.run_id;
      if (chunk.message_type === "stop_reason") stopped = chunk.stop_reason;
      if (asked || chunk.message_type !== "assistant_message") continue;
      asked = true;
      assert.deepEqual(await client.conversations.cancel(conversation.id), { [run]: "cancelled" });
    }
    assert.equal(stopped, "cancelled");
    assert.equal((await client.runs.retrieve(run)).status, "cancelled");
    await assert.rejects(client.conversations.cancel(conversation.id), ConflictError);
    const next = await allOf(client.conversations.messages.create(conversation.id, { messages: said("/say again") }));
    assert.deepEqual(ofType(next, "assistant_message").map((one) => one.content), ["again"]);
  },
};

for (const [name, story] of Object.entries(stories)) {
  console.log(name);
  await story();
}
