//! Failed logins that have no entry yet in the log that people read.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use signalbox_domain::kernel::UserId;
use uuid::Uuid;

use crate::http::network::Network;

/// How long further failures are counted before they are written.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Failures that are written at once in a window, from whatever addresses, beside the first ones of accounts.
const MAX_AT_ONCE: usize = 20;
/// First failures of accounts that are written at once in a window: a flood of other failures hides none of them.
const MAX_ACCOUNTS_AT_ONCE: usize = 100;
/// Pairs of account and address that are counted apart in a window; the others are counted together.
const MAX_PAIRS: usize = 200;

/// The account that a failed login was for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Account {
    Known { id: Uuid, name: String },
    Unknown,
    SingleSignOn,
}

/// Failed logins of the last minute at this gateway, by the clock's monotonic time.
#[derive(Debug, Default)]
pub(crate) struct FailedLogins(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    accounts: HashMap<Account, Duration>,
    networks: HashMap<Network, Duration>,
    /// When entries were written at once, and whether each was the first of an account.
    at_once: Vec<(Duration, bool)>,
    further: HashMap<(Account, Network), Further>,
    elsewhere: Option<Further>,
}

/// Failures that have no entry yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Further {
    count: u64,
    since: Duration,
}

impl Failures {
    /// Counts a failure. True if it is to be written at once.
    fn note(&mut self, account: &Account, network: Network, now: Duration) -> bool {
        self.expire(now);
        let is_new = !self.accounts.contains_key(account);
        let of_account = is_new && matches!(account, Account::Known { .. });
        let most = if of_account { MAX_ACCOUNTS_AT_ONCE } else { MAX_AT_ONCE };
        let written = self.at_once.iter().filter(|(_, other)| *other == of_account).count();
        if (is_new || !self.networks.contains_key(&network)) && written < most {
            self.at_once.push((now, of_account));
            self.accounts.entry(account.clone()).or_insert(now);
            self.networks.entry(network).or_insert(now);
            return true;
        }
        let (pair, new) = ((account.clone(), network), Further { count: 0, since: now });
        let further = match self.further.len() < MAX_PAIRS || self.further.contains_key(&pair) {
            true => self.further.entry(pair).or_insert(new),
            false => self.elsewhere.get_or_insert(new),
        };
        further.count += 1;
        false
    }

    /// Forgets accounts and addresses whose minute is over.
    fn expire(&mut self, now: Duration) {
        self.accounts.retain(|_, since| now.saturating_sub(*since) < WINDOW);
        self.networks.retain(|_, since| now.saturating_sub(*since) < WINDOW);
        self.at_once.retain(|(at, _)| now.saturating_sub(*at) < WINDOW);
    }

    /// Takes the failures that began to be counted at `latest` or before.
    fn take(&mut self, latest: Duration) -> Vec<(Option<(Account, Network)>, u64)> {
        let due: Vec<_> = self.further.extract_if(|_, further| further.since <= latest).collect();
        let elsewhere = self.elsewhere.take_if(|further| further.since <= latest);
        let due = due.into_iter().map(|(pair, further)| (Some(pair), further.count));
        due.chain(elsewhere.map(|further| (None, further.count))).collect()
    }
}

impl FailedLogins {
    /// Counts a failure. True if it is to be written at once.
    pub(crate) fn note(&self, account: &Account, network: Network, now: Duration) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).note(account, network, now)
    }

    /// Takes the failures that began to be counted at `latest` or before.
    pub(crate) fn take(&self, latest: Duration) -> Vec<(Option<(Account, Network)>, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(latest)
    }
}

impl Account {
    pub(crate) fn user(&self) -> Option<UserId> {
        if let Self::Known { id, .. } = self { Some(UserId(*id)) } else { None }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Known { name, .. } => format!("login as {name}"),
            Self::Unknown => "login as an unknown user".to_owned(),
            Self::SingleSignOn => "single sign-on".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn network(last: u8) -> Network {
        IpAddr::from([10, 0, 0, last]).into()
    }

    fn known(id: u128) -> Account {
        Account::Known { id: Uuid::from_u128(id), name: format!("user {id}") }
    }

    #[test]
    fn the_first_of_an_account_and_of_an_address_are_written_at_once() {
        let (mut failures, now) = (Failures::default(), Duration::from_secs(1000));
        assert!(failures.note(&known(1), network(1), now));
        assert!(failures.note(&known(2), network(1), now), "another account");
        assert!(failures.note(&known(1), network(2), now), "another address");
        assert!(!failures.note(&known(2), network(2), now), "both are known");
        assert!(!failures.note(&known(1), network(1), now));
        assert!(failures.note(&known(1), network(1), now + WINDOW), "a minute later");
    }

    #[test]
    fn further_failures_are_one_number_after_a_minute() {
        let (mut failures, now) = (Failures::default(), Duration::from_secs(1000));
        for _ in 0..13 {
            failures.note(&known(1), network(1), now);
        }
        assert_eq!(failures.take(now - Duration::from_secs(1)), []);
        assert_eq!(failures.take(now), [(Some((known(1), network(1))), 12)]);
        assert_eq!(failures.take(now), []);
    }

    #[test]
    fn a_flood_hides_no_first_failure_of_an_account() {
        let (mut failures, now) = (Failures::default(), Duration::from_secs(1000));
        for last in 0..100 {
            failures.note(&Account::Unknown, network(last), now);
            failures.note(&known(1), network(last), now);
        }
        assert!(failures.note(&known(2), network(200), now));
        assert!(!failures.note(&known(2), network(201), now), "its further ones are counted");
        let at_once = (3..1000).filter(|id| failures.note(&known(*id), network(200), now)).count();
        assert_eq!(at_once, MAX_ACCOUNTS_AT_ONCE - 2);
    }

    #[test]
    fn a_flood_from_many_addresses_is_bounded() {
        let (mut failures, now) = (Failures::default(), Duration::from_secs(1000));
        let mut at_once = 0;
        for attempt in 0..100_000_u32 {
            let [_, b, c, d] = attempt.to_be_bytes();
            at_once += usize::from(failures.note(&Account::Unknown, IpAddr::from([9, b, c, d]).into(), now));
        }
        let counted = failures.take(now);
        assert_eq!((at_once, counted.len()), (MAX_AT_ONCE, MAX_PAIRS + 1));
        assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), 100_000 - MAX_AT_ONCE as u64);
    }
}
