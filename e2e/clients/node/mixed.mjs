// Carries out a plan of `e2e/src/mixed` with `@libsql/client` and `curl`:
//
//     node mixed.mjs http://127.0.0.1:8080 PLAN.json
//
// Every client of the plan does its operations one after the other, all clients at once. For
// each operation one line of JSON goes to standard output: its id and its fate. `failed` is
// said only of what certainly was not executed; what is not known is `indeterminate`.

import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { setTimeout as pause } from "node:timers/promises";
import { createClient, LibsqlError } from "@libsql/client";

// A node that is down would else be dialled thousands of times a second.
const UNREACHABLE_PAUSE_MS = 100;
const REQUEST_SECONDS_MAX = 60;
const CURL_COULD_NOT_CONNECT = 7;
// Answers of the listener that come before a request is looked at.
const REFUSED_BEFORE = [429, 503];

const [url, planFile] = process.argv.slice(2);
const plan = JSON.parse(await readFile(planFile, "utf8"));

class Failed extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

class Indeterminate extends Error {}

// ---- @libsql/client ----

function libsqlValue(value) {
  switch (value.type) {
    case "null":
      return null;
    case "integer":
      return BigInt(value.value);
    case "blob":
      return Buffer.from(value.base64, "base64");
    default:
      return value.value;
  }
}

class LibsqlRunner {
  constructor(protocol) {
    this.client = createClient({ url: url.replace(/^http/, protocol), intMode: "bigint" });
  }

  async run(op) {
    const statements = op.statements.map(([sql, args]) => ({ sql, args: args.map(libsqlValue) }));
    switch (op.way) {
      case "single":
        return await this.told(this.client.execute(statements[0]));
      case "batch":
        return await this.told(this.client.batch(statements, "write"));
      default:
        return await this.transaction(statements, op.way);
    }
  }

  async transaction(statements, end) {
    let transaction;
    try {
      transaction = await this.client.transaction("write");
      for (const statement of statements) {
        await transaction.execute(statement);
      }
    } catch (error) {
      transaction?.close();
      // Nobody sent COMMIT.
      throw new Failed(codeOf(error), String(error));
    }
    try {
      await this.told(end === "commit" ? transaction.commit() : transaction.rollback());
    } finally {
      transaction.close();
    }
  }

  async told(promise) {
    try {
      await promise;
    } catch (error) {
      const code = codeOf(error);
      if (/^(SQLITE|CONNECT)/.test(code) || isRefusal(code, error)) {
        throw new Failed(code, String(error));
      }
      throw new Indeterminate(`${code}: ${error}`);
    }
  }

  close() {
    this.client.close();
  }
}

function codeOf(error) {
  if (isRefusedConnection(error)) {
    return "CONNECT";
  }
  return error instanceof LibsqlError ? error.code : "?";
}

function isRefusedConnection(error) {
  for (let cause = error; cause; cause = cause.cause) {
    if (cause.code === "ECONNREFUSED" || /ECONNREFUSED/.test(cause.message ?? "")) {
      return true;
    }
  }
  return false;
}

function isRefusal(code, error) {
  if (code.startsWith("TIDEGATE_")) {
    return code !== "TIDEGATE_INDETERMINATE";
  }
  return code === "SERVER_ERROR" && REFUSED_BEFORE.includes(error.cause?.status);
}

// ---- curl ----

class CurlRunner {
  async run(op) {
    if (op.way === "single") {
      const { results } = await this.pipeline(null, [execute(op.statements[0]), { type: "close" }]);
      return answered(results[0]);
    }
    if (op.way === "batch") {
      const steps = transactionSteps(op.statements);
      const requests = [{ type: "batch", batch: { steps } }, { type: "close" }];
      const { results } = await this.pipeline(null, requests);
      return batchAnswered(answered(results[0]).result, op.statements.length + 1);
    }
    return await this.transaction(op.statements, op.way.toUpperCase());
  }

  async transaction(statements, end) {
    let baton = null;
    try {
      for (const statement of [["BEGIN IMMEDIATE", []], ...statements]) {
        const reply = await this.pipeline(baton, [execute(statement)]);
        baton = reply.baton;
        answered(reply.results[0]);
      }
    } catch (error) {
      if (baton !== null) {
        await this.pipeline(baton, [{ type: "close" }]).catch(() => {});
      }
      // Nobody sent COMMIT.
      throw new Failed(error.code ?? "?", error.message);
    }
    const { results } = await this.pipeline(baton, [execute([end, []]), { type: "close" }]);
    answered(results[0]);
  }

  async pipeline(baton, requests) {
    const { exit, output, complaint } = await curl(JSON.stringify({ baton, requests }));
    if (exit === CURL_COULD_NOT_CONNECT) {
      throw new Failed("CONNECT", complaint);
    }
    if (exit !== 0) {
      throw new Indeterminate(`curl ended with ${exit}: ${complaint}`);
    }
    const end = output.lastIndexOf("\n");
    const status = Number(output.slice(end + 1));
    const reply = JSON.parse(output.slice(0, end));
    if (Array.isArray(reply.results)) {
      return reply;
    }
    if (REFUSED_BEFORE.includes(status) && reply.code !== "TIDEGATE_INDETERMINATE") {
      throw new Failed(reply.code, reply.message);
    }
    throw new Indeterminate(`${status}: ${output}`);
  }

  close() {}
}

function curl(body) {
  const child = spawn("curl", [
    "--silent", "--show-error", "--max-time", REQUEST_SECONDS_MAX,
    "--header", "content-type: application/json", "--data-binary", "@-",
    "--write-out", "\n%{http_code}", `${url}/v2/pipeline`,
  ]);
  return new Promise((done, fail) => {
    let output = "";
    let complaint = "";
    child.stdout.setEncoding("utf8").on("data", (text) => (output += text));
    child.stderr.setEncoding("utf8").on("data", (text) => (complaint += text));
    child.on("error", fail);
    child.on("close", (exit) => done({ exit, output, complaint }));
    // It may end before it has read everything.
    child.stdin.on("error", () => {});
    child.stdin.end(body);
  });
}

function execute([sql, args]) {
  return { type: "execute", stmt: { sql, args, want_rows: true } };
}

// BEGIN, the statements, COMMIT, each only if the one before succeeded; ROLLBACK otherwise.
function transactionSteps(statements) {
  const steps = [["BEGIN IMMEDIATE", []], ...statements, ["COMMIT", []]].map(
    ([sql, args], i) => ({
      stmt: { sql, args, want_rows: false },
      condition: i === 0 ? null : { type: "ok", step: i - 1 },
    }),
  );
  const condition = { type: "not", cond: { type: "ok", step: steps.length - 1 } };
  return [...steps, { stmt: { sql: "ROLLBACK" }, condition }];
}

function answered(result) {
  if (result.type === "ok") {
    return result.response;
  }
  const { code, message } = result.error;
  if (code === "TIDEGATE_INDETERMINATE") {
    throw new Indeterminate(message);
  }
  throw new Failed(code ?? "?", message);
}

function batchAnswered({ step_results, step_errors }, commit) {
  if (step_results[commit] === null) {
    const error = step_errors.find((e) => e !== null);
    answered({ type: "error", error: error ?? { code: "TIDEGATE_INDETERMINATE", message: "?" } });
  }
}

// ---- the plan ----

const runners = {
  http: () => new LibsqlRunner("http"),
  ws: () => new LibsqlRunner("ws"),
  curl: () => new CurlRunner(),
};

async function fateOf(runner, op) {
  try {
    await runner.run(op);
    return { id: op.id, fate: "acknowledged" };
  } catch (error) {
    const fate = error instanceof Failed ? "failed" : "indeterminate";
    return { id: op.id, fate, code: error.code ?? "", message: error.message };
  }
}

await Promise.all(
  plan.clients.map(async ({ via, ops }) => {
    const runner = runners[via]();
    for (const op of ops) {
      const answer = await fateOf(runner, op);
      process.stdout.write(`${JSON.stringify(answer)}\n`);
      if (answer.code === "CONNECT") {
        await pause(UNREACHABLE_PAUSE_MS);
      }
    }
    runner.close();
  }),
);
