use std::fmt;

use serde::Serialize;
use sqlx::{PgPool, Row};

use super::{
    Hash, SignedHead,
    hash::{Columns, LENGTH, read_columns},
};
use crate::head_position;

/// Events that are in memory at a time.
const BATCH: i64 = 1000;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Newest position of the log, when the check began.
    pub head: i64,
    /// Position up to which the events were compared with the chain.
    pub verified: i64,
    /// Events at the end that are not in the chain yet; they were only checked for gaps.
    pub unchained: i64,
    /// The first fault, if any.
    pub fault: Option<Fault>,
}

/// The first that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// There is no event at this position.
    Missing {
        /// The position.
        position: i64,
    },
    /// The event differs from the chained one.
    Altered {
        /// Its position.
        position: i64,
    },
    /// The event was recorded at another position.
    Reordered {
        /// Where it stands.
        position: i64,
        /// Where it was recorded.
        recorded_at: i64,
    },
    /// The event is as it was, but its hash in the chain is not.
    ChainAltered {
        /// Its position.
        position: i64,
    },
    /// The chain itself lacks this position.
    ChainBroken {
        /// The position.
        position: i64,
    },
    /// The log and its chain end before the head that was published.
    CutOff {
        /// First position that is missing.
        position: i64,
        /// Position of the published head.
        published: i64,
    },
    /// Log and chain fit each other, but not the head that was published: both were written again.
    NotAsPublished {
        /// Position of the published head.
        position: i64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { position } => write!(f, "event {position} is missing"),
            Self::Altered { position } => write!(f, "event {position} was altered"),
            Self::Reordered { position, recorded_at } => {
                write!(f, "event {position} was reordered: it is the one that was recorded at {recorded_at}")
            }
            Self::ChainAltered { position } => {
                write!(f, "the hash of event {position} was altered; the event was not")
            }
            Self::ChainBroken { position } => write!(f, "the hash chain is broken at event {position}"),
            Self::CutOff { position, published } => {
                write!(
                    f,
                    "the log was cut off before event {position}: the published head is of event {published}"
                )
            }
            Self::NotAsPublished { position } => {
                write!(
                    f,
                    "the log was written anew: event {position} is not the one whose hash was published"
                )
            }
        }
    }
}

/// Compares the log with its chain and with a `published` head, from the first event to the first fault. `progress`
/// receives the position reached and the last position.
///
/// # Errors
/// The database's error.
pub async fn verify_chain(
    pool: &PgPool,
    published: Option<&SignedHead>,
    mut progress: impl FnMut(i64, i64),
) -> Result<Verification, sqlx::Error> {
    let head = head_position(pool).await?;
    let mut links = Links { pool, next: 1, row: None };
    let mut check = Check { position: 0, hash: Hash::START, verified: 0, published };
    let fault = loop {
        progress(check.position, head);
        let events = read_columns(pool, check.position, head, BATCH).await?;
        let hashes = match links.read(check.position, events.len()).await? {
            Ok(hashes) => hashes,
            Err(fault) => break Some(fault),
        };
        match check.compare(&events, &hashes) {
            Err(Unlike::At(index)) => {
                break Some(explain(pool, check.hash, &events[index..], &hashes[index..]).await?);
            }
            Err(Unlike::Fault(fault)) => break Some(fault),
            Ok(()) if events.is_empty() => break check.end(&mut links, head).await?,
            Ok(()) => {}
        }
    };
    Ok(Verification { head, verified: check.verified, unchained: head - check.verified, fault })
}

/// State of the verification.
struct Check<'a> {
    position: i64,
    /// Of the event there, made of all events.
    hash: Hash,
    /// Position of the last event that was compared with the chain.
    verified: i64,
    published: Option<&'a SignedHead>,
}

/// Why a comparison ended.
enum Unlike {
    /// The event at this index has another hash.
    At(usize),
    Fault(Fault),
}

impl Check<'_> {
    /// Compares the next events with their hashes in the chain.
    fn compare(&mut self, events: &[Columns], hashes: &[Hash]) -> Result<(), Unlike> {
        for (index, event) in events.iter().enumerate() {
            let position = self.position + 1;
            if event.position != position {
                return Err(Unlike::Fault(Fault::Missing { position }));
            }
            let hash = self.hash.then(event);
            // Events that are not chained yet have nothing to be compared with.
            if let Some(chained) = hashes.get(index) {
                if hash != *chained {
                    return Err(Unlike::At(index));
                }
                self.verified = position;
            }
            if self.published.is_some_and(|head| head.position == position && head.hash != hash.to_string()) {
                return Err(Unlike::Fault(Fault::NotAsPublished { position }));
            }
            (self.position, self.hash) = (position, hash);
        }
        Ok(())
    }

    /// The fault at the end, after the last event.
    async fn end(&self, links: &mut Links<'_>, head: i64) -> Result<Option<Fault>, sqlx::Error> {
        let position = self.position + 1;
        if position <= head {
            return Ok(Some(Fault::Missing { position }));
        }
        if let Some(published) = self.published
            && published.position >= position
        {
            return Ok(Some(Fault::CutOff { position, published: published.position }));
        }
        // The chain follows the log, so hashes beyond the log's end prove missing events, unless they have just been
        // appended.
        let has_more = links.read(self.position, 1).await?.is_ok_and(|hashes| !hashes.is_empty());
        let is_missing = has_more && head_position(links.pool).await? < position;
        Ok(is_missing.then_some(Fault::Missing { position }))
    }
}

/// Explains why the first of `events` does not have the first of `hashes`; `before` is the previous hash.
async fn explain(
    pool: &PgPool,
    before: Hash,
    events: &[Columns],
    hashes: &[Hash],
) -> Result<Fault, sqlx::Error> {
    let position = events[0].position;
    if let Some(recorded_at) = place_of(pool, &events[0]).await? {
        return Ok(Fault::Reordered { position, recorded_at });
    }
    Ok(match (events.get(1), hashes.get(1)) {
        // The next hash continues from the event as it is now, and not from its own entry in the chain.
        (Some(next), Some(hash)) if before.then(&events[0]).then(next) == *hash => {
            Fault::ChainAltered { position }
        }
        _ => Fault::Altered { position },
    })
}

/// Where `event` was recorded, after the whole chain.
async fn place_of(pool: &PgPool, event: &Columns) -> Result<Option<i64>, sqlx::Error> {
    let mut links = Links { pool, next: 1, row: None };
    let (mut position, mut before) = (0, Hash::START);
    while let Ok(hashes) = links.read(position, BATCH as usize).await? {
        if hashes.is_empty() {
            break;
        }
        for hash in hashes {
            position += 1;
            if before.then_at(position, event) == hash {
                return Ok(Some(position));
            }
            before = hash;
        }
    }
    Ok(None)
}

/// Reads the chain in order.
struct Links<'a> {
    pool: &'a PgPool,
    /// First position of the next row.
    next: i64,
    /// The row that was read last, and its first position.
    row: Option<(i64, Vec<u8>)>,
}

impl Links<'_> {
    /// The hashes of the `count` events after `position`; fewer when the chain ends.
    async fn read(&mut self, position: i64, count: usize) -> Result<Result<Vec<Hash>, Fault>, sqlx::Error> {
        let mut hashes = Vec::with_capacity(count);
        while hashes.len() < count {
            let target = position + 1 + hashes.len() as i64;
            if target >= self.next && !self.fetch().await? {
                break;
            }
            let Some((first, bytes)) = &self.row else { break };
            let Ok(skip) = usize::try_from(target - first) else {
                return Ok(Err(Fault::ChainBroken { position: target }));
            };
            let more = bytes.chunks_exact(LENGTH).skip(skip).filter_map(Hash::from_bytes);
            hashes.extend(more.take(count - hashes.len()));
        }
        Ok(Ok(hashes))
    }

    /// Fetches the next row; false at the end.
    async fn fetch(&mut self) -> Result<bool, sqlx::Error> {
        let row = sqlx::query(
            "SELECT first_position, last_position, hashes FROM log_chain
              WHERE first_position >= $1 ORDER BY first_position LIMIT 1",
        )
        .bind(self.next)
        .fetch_optional(self.pool)
        .await?;
        let Some(row) = row else { return Ok(false) };
        self.next = row.try_get::<i64, _>("last_position")? + 1;
        self.row = Some((row.try_get("first_position")?, row.try_get("hashes")?));
        Ok(true)
    }
}
