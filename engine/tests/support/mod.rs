//! What tests of a single store share.

use tidegate_engine::{ReadView, Store};

/// A data directory and the statements that filled it.
pub struct Fixture {
    pub store: Store,
    _dir: tempfile::TempDir,
}

impl Fixture {
    pub fn new(statements: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("data")).unwrap();
        let fixture = Self { store, _dir: dir };
        fixture.run(statements);
        fixture
    }

    pub fn run(&self, statements: &[&str]) {
        let mut connection = self.store.internal().unwrap();
        for statement in statements {
            connection.execute(statement, &[]).unwrap();
        }
    }

    pub fn read<T>(&self, read: impl FnOnce(&mut ReadView<'_>) -> T) -> T {
        let mut reader = self.store.reader().unwrap();
        read(&mut ReadView::begin(&mut reader, self.store.gate()).unwrap())
    }
}
