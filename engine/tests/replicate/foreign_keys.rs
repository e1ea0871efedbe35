//! Foreign-key actions happen on the primary; their rows are shipped like any others.

use crate::replicates;

#[test]
fn every_action_on_delete_and_update() {
    for action in [
        "CASCADE",
        "SET NULL",
        "SET DEFAULT",
        "RESTRICT",
        "NO ACTION",
    ] {
        let refuses = ["RESTRICT", "NO ACTION"].contains(&action);
        let sign = if refuses { "!" } else { "" };
        replicates(&format!(
            "CREATE TABLE p(id INTEGER PRIMARY KEY, v)
             CREATE TABLE c(id INTEGER PRIMARY KEY, p INTEGER DEFAULT 1 REFERENCES p(id) ON DELETE {action} ON UPDATE {action})
             INSERT INTO p VALUES (1, 'default'), (2, 'a'), (3, 'b')
             INSERT INTO c(p) VALUES (1), (2), (2), (3)
             {sign}DELETE FROM p WHERE id = 2
             {sign}UPDATE p SET id = 30 WHERE id = 3
             !INSERT INTO c(p) VALUES (99)"
        ));
    }
}

#[test]
fn cascades_over_three_tables_and_into_the_same_one() {
    replicates(
        "CREATE TABLE a(id INTEGER PRIMARY KEY)
         CREATE TABLE b(id INTEGER PRIMARY KEY, a REFERENCES a(id) ON DELETE CASCADE)
         CREATE TABLE c(id INTEGER PRIMARY KEY, b REFERENCES b(id) ON DELETE CASCADE)
         CREATE TABLE tree(id INTEGER PRIMARY KEY, up REFERENCES tree(id) ON DELETE CASCADE)
         INSERT INTO a VALUES (1), (2)
         INSERT INTO b VALUES (1, 1), (2, 1), (3, 2)
         INSERT INTO c VALUES (1, 1), (2, 2), (3, 3)
         INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (4, 3), (5, NULL)
         DELETE FROM a WHERE id = 1
         DELETE FROM tree WHERE id = 2
         REPLACE INTO a VALUES (2)",
    );
}

#[test]
fn deferred_keys_may_be_mended_before_commit() {
    replicates(
        "CREATE TABLE p(id INTEGER PRIMARY KEY)
         CREATE TABLE c(id INTEGER PRIMARY KEY, p REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED)
         BEGIN
         INSERT INTO c VALUES (1, 7)
         INSERT INTO p VALUES (7)
         COMMIT
         BEGIN
         INSERT INTO c VALUES (2, 8)
         !COMMIT
         ROLLBACK",
    );
}

#[test]
fn a_parent_is_dropped() {
    replicates(
        "CREATE TABLE p(id INTEGER PRIMARY KEY)
         CREATE TABLE c(id INTEGER PRIMARY KEY, p REFERENCES p(id) ON DELETE SET NULL)
         INSERT INTO p VALUES (1), (2)
         INSERT INTO c VALUES (1, 1), (2, 2)
         DROP TABLE p
         CREATE TABLE p(id INTEGER PRIMARY KEY, more)
         INSERT INTO p VALUES (1, 'x')",
    );
}
