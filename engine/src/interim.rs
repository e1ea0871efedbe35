//! Stand-ins for the DDL log: the same names, the least behaviour.
//! They leave as soon as the real ones land.
#![allow(missing_docs, dead_code)]

pub mod logged {
    use crate::adapter::Connection;
    use crate::change::Seq;
    use crate::error::{Error, Result};

    #[derive(Clone)]
    pub struct Ledger {
        before: Seq,
        changed: u64,
    }

    pub struct Sealed {
        pub before: Seq,
        pub head: Seq,
    }

    impl Ledger {
        pub fn begin(connection: &mut Connection) -> Result<Self> {
            Ok(Self {
                before: head(connection)?,
                changed: 0,
            })
        }

        pub fn wrote(&mut self, changes: i64, _quiet: bool) {
            self.changed += u64::try_from(changes).unwrap_or(0);
        }

        pub fn undone(&mut self, _connection: &mut Connection) -> Result<()> {
            self.changed = 0;
            Ok(())
        }

        pub fn seal(self, connection: &mut Connection) -> Result<Sealed> {
            let head = head(connection)?;
            if head.get() - self.before.get() < self.changed {
                return Err(Error::Fatal("a write was not captured".into()));
            }
            Ok(Sealed {
                before: self.before,
                head,
            })
        }
    }

    pub fn head(connection: &mut Connection) -> Result<Seq> {
        let head = connection.query_integer("SELECT max(change_id) FROM turso_cdc", &[])?;
        Ok(Seq::from_sql(head.unwrap_or(0)).unwrap_or_default())
    }

    pub fn run_ddl(connection: &mut Connection, sql: &str) -> Result<bool> {
        connection.execute(sql, &[])?;
        Ok(true)
    }
}
