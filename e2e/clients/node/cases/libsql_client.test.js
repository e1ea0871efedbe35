// `@libsql/client` over HTTP and over WebSocket, against the node at TIDEGATE_URL.
//
// Every test uses tables of its own, so that a node may be used again.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { createClient, LibsqlError } from "@libsql/client";

const base = process.env.TIDEGATE_URL ?? "http://127.0.0.1:8080";

for (const url of [base, base.replace(/^http/, "ws")]) {
  const protocol = new URL(url).protocol.slice(0, -1);
  describe(`@libsql/client over ${protocol}`, () => {
    let client;
    let serial = 0;
    const table = () => `t_${protocol}_${process.pid}_${serial++}`;

    before(() => {
      client = createClient({ url, intMode: "bigint" });
    });
    after(() => client.close());

    async function fresh(columns) {
      const name = table();
      await client.execute(`CREATE TABLE ${name} (${columns})`);
      return name;
    }

    test("a single value has a column and a row", async () => {
      const result = await client.execute("SELECT 42 AS answer");
      assert.deepEqual(result.columns, ["answer"]);
      assert.equal(result.rows[0].answer, 42n);
      assert.equal(result.rows[0][0], 42n);
    });

    test("insert tells rows and row id, and RETURNING gives rows", async () => {
      const name = await fresh("id INTEGER PRIMARY KEY, v TEXT");
      const inserted = await client.execute(`INSERT INTO ${name} (v) VALUES ('a'), ('b')`);
      assert.equal(inserted.rowsAffected, 2);
      assert.equal(inserted.lastInsertRowid, 2n);
      const returned = await client.execute(`INSERT INTO ${name} (v) VALUES ('c') RETURNING id, v`);
      assert.deepEqual({ ...returned.rows[0] }, { id: 3n, v: "c" });
    });

    test("positional and named arguments are bound", async () => {
      const positional = await client.execute({ sql: "SELECT ?, ?2", args: ["x", 2] });
      assert.deepEqual([positional.rows[0][0], positional.rows[0][1]], ["x", 2]);
      const named = await client.execute({
        sql: "SELECT :a, @b, $c",
        args: { a: 1n, b: "two", c: null },
      });
      assert.deepEqual([named.rows[0][0], named.rows[0][1], named.rows[0][2]], [1n, "two", null]);
      const prefixed = await client.execute({ sql: "SELECT :a", args: { ":a": "p" } });
      assert.equal(prefixed.rows[0][0], "p");
    });

    test("values come back exactly", async () => {
      const values = [
        null,
        9223372036854775807n,
        -9223372036854775808n,
        0.1,
        5e-324,
        1.7976931348623157e308,
        "",
        "nul \u0000 inside",
        "four bytes 😀 and \u2028 \u2029 \u0085",
        'quotes " \\ and control \u0001\u001f\u007f',
      ];
      for (const value of values) {
        const result = await client.execute({ sql: "SELECT ?", args: [value] });
        assert.equal(result.rows[0][0], value);
      }
      // JSON.stringify writes -0 as 0, so this client cannot send it; it can receive it.
      const negative = await client.execute("SELECT -1.0 * 0.0 AS n");
      assert.ok(Object.is(negative.rows[0].n, -0), "-0.0 keeps its sign");
    });

    test("infinities come back as infinities", async () => {
      const result = await client.execute("SELECT 1e308 * 10, -1e308 * 10");
      assert.equal(result.rows[0][0], Infinity);
      assert.equal(result.rows[0][1], -Infinity);
    });

    test("blobs of every length modulo three come back", async () => {
      for (const length of [0, 1, 2, 3, 255, 256, 100_000]) {
        const blob = Uint8Array.from({ length }, (_, i) => (i * 7) & 255);
        const result = await client.execute({ sql: "SELECT ?, typeof(?1)", args: [blob] });
        assert.deepEqual(new Uint8Array(result.rows[0][0]), blob);
        assert.equal(result.rows[0][1], "blob");
      }
    });

    test("errors carry SQLite's extended code", async () => {
      const name = await fresh("id INTEGER PRIMARY KEY, u UNIQUE, n NOT NULL, c CHECK (c > 0)");
      await client.execute(`INSERT INTO ${name} VALUES (1, 1, 1, 1)`);
      const cases = [
        [`INSERT INTO ${name} VALUES (2, 1, 1, 1)`, "SQLITE_CONSTRAINT_UNIQUE"],
        [`INSERT INTO ${name} VALUES (2, 2, NULL, 1)`, "SQLITE_CONSTRAINT_NOTNULL"],
        [`INSERT INTO ${name} VALUES (2, 2, 1, 0)`, "SQLITE_CONSTRAINT_CHECK"],
        // SQLite says PRIMARYKEY; the engine does not tell a key from another unique column.
        [`INSERT INTO ${name} VALUES (1, 2, 1, 1)`, "SQLITE_CONSTRAINT_UNIQUE"],
      ];
      for (const [sql, code] of cases) {
        await assert.rejects(client.execute(sql), (error) => {
          assert.ok(error instanceof LibsqlError);
          assert.equal(error.code, code, sql);
          return true;
        });
      }
      await assert.rejects(client.execute("SELEKT 1"), LibsqlError);
      await assert.rejects(client.execute("SELECT * FROM no_such_table"), LibsqlError);
    });

    test("a batch is one transaction: all or nothing", async () => {
      const name = await fresh("id INTEGER PRIMARY KEY");
      await client.batch([`INSERT INTO ${name} VALUES (1)`, `INSERT INTO ${name} VALUES (2)`], "write");
      await assert.rejects(
        client.batch([`INSERT INTO ${name} VALUES (3)`, `INSERT INTO ${name} VALUES (1)`], "write"),
        (error) => error.code === "SQLITE_CONSTRAINT_UNIQUE",
      );
      const count = await client.execute(`SELECT count(*) AS n FROM ${name}`);
      assert.equal(count.rows[0].n, 2n);
    });

    test("a batch in each mode works, and a read-only one writes nothing", async () => {
      const name = await fresh("id INTEGER PRIMARY KEY");
      for (const mode of ["deferred", "write", "read"]) {
        const results = await client.batch([`SELECT count(*) FROM ${name}`], mode);
        assert.equal(results[0].rows[0][0], 0n);
      }
      await assert.rejects(client.batch([`INSERT INTO ${name} VALUES (1)`], "read"), LibsqlError);
      const count = await client.execute(`SELECT count(*) AS n FROM ${name}`);
      assert.equal(count.rows[0].n, 0n);
    });

    test("a large batch of repeated statements uses stored SQL", async () => {
      const name = await fresh("id INTEGER PRIMARY KEY, v TEXT");
      const sql = `INSERT INTO ${name} (v) VALUES (?)`;
      const rows = Array.from({ length: 500 }, (_, i) => ({ sql, args: [`v${i}`] }));
      const results = await client.batch(rows, "write");
      assert.equal(results.length, 500);
      const count = await client.execute(`SELECT count(DISTINCT v) AS n FROM ${name}`);
      assert.equal(count.rows[0].n, 500n);
    });

    test("an interactive transaction commits", async () => {
      const name = await fresh("id INTEGER PRIMARY KEY, v");
      const transaction = await client.transaction("write");
      await transaction.execute(`INSERT INTO ${name} VALUES (1, 'a')`);
      const seen = await transaction.execute(`SELECT v FROM ${name}`);
      assert.equal(seen.rows[0].v, "a");
      const outside = await client.execute(`SELECT count(*) AS n FROM ${name}`);
      assert.equal(outside.rows[0].n, 0n);
      await transaction.commit();
      const after = await client.execute(`SELECT count(*) AS n FROM ${name}`);
      assert.equal(after.rows[0].n, 1n);
    });

    test("an interactive transaction rolls back, and closing one does too", async () => {
      const name = await fresh("id INTEGER PRIMARY KEY");
      const first = await client.transaction("write");
      await first.execute(`INSERT INTO ${name} VALUES (1)`);
      await first.rollback();
      const second = await client.transaction("deferred");
      await second.execute(`INSERT INTO ${name} VALUES (2)`);
      second.close();
      // The next writer waits until the closed one is gone.
      await client.execute(`INSERT INTO ${name} VALUES (3)`);
      const rows = await client.execute(`SELECT id FROM ${name}`);
      assert.deepEqual(rows.rows.map((row) => row.id), [3n]);
    });

    test("an error inside a transaction leaves it usable", async () => {
      const name = await fresh("id INTEGER PRIMARY KEY");
      const transaction = await client.transaction("write");
      await transaction.execute(`INSERT INTO ${name} VALUES (1)`);
      await assert.rejects(transaction.execute(`INSERT INTO ${name} VALUES (1)`), LibsqlError);
      await transaction.execute(`INSERT INTO ${name} VALUES (2)`);
      await transaction.commit();
      const count = await client.execute(`SELECT count(*) AS n FROM ${name}`);
      assert.equal(count.rows[0].n, 2n);
    });

    test("executeMultiple runs a script with a trigger, and stops at an error", async () => {
      const name = table();
      await client.executeMultiple(`
        CREATE TABLE ${name} (id INTEGER PRIMARY KEY, v);
        CREATE TABLE ${name}_log (v);
        CREATE TRIGGER ${name}_ai AFTER INSERT ON ${name} BEGIN
          INSERT INTO ${name}_log VALUES (new.v); -- a semicolon; in a comment
        END;
        INSERT INTO ${name} (v) VALUES ('x;y');
      `);
      const log = await client.execute(`SELECT v FROM ${name}_log`);
      assert.equal(log.rows[0].v, "x;y");
      await assert.rejects(
        client.executeMultiple(`INSERT INTO ${name} (v) VALUES (1); INSERT INTO nowhere VALUES (1);
                                INSERT INTO ${name} (v) VALUES (2);`),
      );
      const count = await client.execute(`SELECT count(*) AS n FROM ${name}`);
      assert.equal(count.rows[0].n, 2n);
    });

    test("migrate runs with foreign keys off", async () => {
      const name = table();
      await client.migrate([
        `CREATE TABLE ${name}_p (id INTEGER PRIMARY KEY)`,
        `CREATE TABLE ${name}_c (p INTEGER REFERENCES ${name}_p (id))`,
        `INSERT INTO ${name}_c VALUES (7)`,
      ]);
      const rows = await client.execute(`SELECT p FROM ${name}_c`);
      assert.equal(rows.rows[0].p, 7n);
      await assert.rejects(
        client.execute(`INSERT INTO ${name}_c VALUES (8)`),
        (error) => error.code === "SQLITE_CONSTRAINT_FOREIGNKEY",
      );
    });

    test("session functions answer for the client's own transaction", async () => {
      const name = await fresh("id INTEGER PRIMARY KEY, v");
      const transaction = await client.transaction("write");
      await transaction.execute(`INSERT INTO ${name} VALUES (41, 'x'), (42, 'y')`);
      const result = await transaction.execute("SELECT last_insert_rowid() AS id, changes() AS n");
      assert.deepEqual({ ...result.rows[0] }, { id: 42n, n: 2n });
      await transaction.commit();
    });

    test("sixteen writers at once all succeed", async () => {
      const name = await fresh("id INTEGER PRIMARY KEY, w");
      const writer = async (w) => {
        for (let i = 0; i < 20; i++) {
          await client.execute({ sql: `INSERT INTO ${name} (w) VALUES (?)`, args: [w] });
        }
      };
      await Promise.all(Array.from({ length: 16 }, (_, w) => writer(w)));
      const count = await client.execute(`SELECT count(*) AS n FROM ${name}`);
      assert.equal(count.rows[0].n, 320n);
    });
  });
}
