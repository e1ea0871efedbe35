//! What a statement sets off: triggers, the statements in their bodies, the actions of
//! foreign keys, and so on until nothing new is found.
//!
//! It matters for one trap. An outer `OR REPLACE` is inherited by the statements of the
//! triggers it fires, and makes a plain UPDATE there act as UPDATE OR REPLACE, whose
//! evictions the engine does not capture. So a REPLACE is refused where an UPDATE is within
//! reach. (A DO UPDATE does not inherit: it fails on the second conflict.) The search over-approximates: every trigger is assumed to fire.

use std::collections::BTreeSet;

use super::refusals;
use super::schema_facts::{Action, Event, SchemaFacts, TriggerFacts, cascades, key};
use crate::error::{Error, Result};

/// Refuses `INSERT OR REPLACE INTO table` when a trigger within its reach updates.
pub(super) fn check_replace(facts: &SchemaFacts, table: &str) -> Result<()> {
    let starts = [(key(table), Event::Insert), (key(table), Event::Delete)];
    let updating = reachable(facts, starts, Inherited::Replace)
        .into_iter()
        .find(|trigger| trigger.commands.iter().any(|c| c.action == Action::Update));
    match updating {
        Some(trigger) => {
            let subject = format!("REPLACE INTO {table} reaches trigger {}", trigger.name);
            Err(refusals::REPLACE_FIRES_UPDATE.refuse(&subject))
        }
        None => Ok(()),
    }
}

/// True when a statement with this effect can fire a trigger that asks for a session's
/// values.
pub(super) fn touches_session_triggers(facts: &SchemaFacts, table: &str, action: Action) -> bool {
    let starts = events(action, Inherited::Nothing).map(|event| (key(table), event));
    reachable(facts, starts, Inherited::Nothing)
        .iter()
        .any(|trigger| trigger.uses_session_values)
}

/// True when a statement with this effect can fire a trigger or a foreign key's action.
pub(super) fn sets_off_more(facts: &SchemaFacts, table: &str, action: Action) -> bool {
    events(action, Inherited::Nothing).any(|event| {
        let table = key(table);
        let mut triggers = facts.triggers_of(&table, event);
        triggers.next().is_some() || !cascades(facts, &table, event).is_empty()
    })
}

/// Triggers whose bodies hold a REPLACE that [`check_replace`] refuses.
pub(super) fn unsafe_bodies(facts: &SchemaFacts) -> impl Iterator<Item = (String, Error)> {
    facts.triggers().filter_map(|trigger| {
        let replaces = trigger
            .commands
            .iter()
            .filter(|command| matches!(command.action, Action::Insert { replace: true, .. }));
        let refused = replaces.filter_map(|command| check_replace(facts, &command.table).err());
        let error = refused.into_iter().next()?;
        Some((trigger.name.clone(), error))
    })
}

/// What the statements of a body inherit from the statement that fired them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inherited {
    Nothing,
    Replace,
}

fn events(action: Action, inherited: Inherited) -> impl Iterator<Item = Event> {
    let (first, deletes, updates) = match action {
        Action::Insert { replace, upsert } => {
            let replace = replace || inherited == Inherited::Replace;
            (Event::Insert, replace, upsert)
        }
        Action::Update => (Event::Update, false, false),
        Action::Delete => (Event::Delete, false, false),
    };
    let more = [(deletes, Event::Delete), (updates, Event::Update)];
    let more = more.into_iter().filter(|(on, _)| *on).map(|(_, e)| e);
    std::iter::once(first).chain(more)
}

fn reachable(
    facts: &SchemaFacts,
    starts: impl IntoIterator<Item = (String, Event)>,
    inherited: Inherited,
) -> Vec<&TriggerFacts> {
    let mut open: Vec<(String, Event)> = starts.into_iter().collect();
    let mut seen: BTreeSet<(String, Event)> = open.iter().cloned().collect();
    let mut fired = Vec::new();
    while let Some((table, event)) = open.pop() {
        let mut found: BTreeSet<(String, Event)> = cascades(facts, &table, event);
        for trigger in facts.triggers_of(&table, event) {
            fired.push(trigger);
            for command in &trigger.commands {
                let next = events(command.action, inherited);
                found.extend(next.map(|event| (key(&command.table), event)));
            }
        }
        for reached in found {
            if seen.insert(reached.clone()) {
                open.push(reached);
            }
        }
    }
    fired
}
