//! Limits of requests in progress.
//!
//! Up to [`ONE_SENDER`] requests at once, one process sends, and its memory and the claims in the read model say how many there
//! are. With a higher setting every process with workers sends. Then each of them reserves the batches that it sends in
//! `ops.webhook_slots`, under one lock, so that the limits hold for all of them together. That table is for the limits
//! alone: the claims in the log decide who makes an attempt. A reservation of a crashed process expires with its claims.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_config::Webhooks;
use signalbox_database::ops::webhook_slots::{self, Reservation};
use signalbox_domain::{automation::CLAIM_SECONDS, kernel::WebhookId};
use signalbox_projections::automation::due::{DueBatch, LiveClaim, SharingReceiver};
use sqlx::PgPool;
use uuid::Uuid;

/// Requests at once that one process makes by itself.
const ONE_SENDER: usize = 10;
/// Requests in progress for a subscription that is failing.
const FAILING: usize = 1;
/// Of so many slots one is kept from those that are failing, and one from contacts: receivers that hang leave others a way.
const ONE_KEPT_OF: usize = 5;
/// Batches that a process takes at a time where several send, so that none takes all.
const AT_A_TIME: usize = 10;
/// Deliveries of a subscription that are examined for due batches; a batch may have as many as [`OF_BATCH`].
const LEAST_EXAMINED: usize = 200;
const OF_BATCH: usize = 64;

/// The limits that the configuration sets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    all: usize,
    each: usize,
}

impl Limits {
    pub(super) fn of(config: &Webhooks) -> Self {
        let each = config.concurrent_per_subscription.min(config.concurrent_requests);
        Self { all: config.concurrent_requests as usize, each: each as usize }
    }

    /// Whether all processes with workers send.
    pub(super) fn is_shared(self) -> bool {
        self.all > ONE_SENDER
    }

    /// Slots that subscriptions that are failing have together, and contacts.
    fn of_kind(self) -> usize {
        (self.all - self.all / ONE_KEPT_OF).max(1)
    }

    /// Batches that a step may take.
    pub(super) fn most_at_a_time(self) -> usize {
        self.all.min(AT_A_TIME)
    }

    /// Deliveries of a subscription that are examined for at most `free` batches.
    pub(super) fn examined(self, free: usize) -> i64 {
        i64::try_from((self.each.min(free) * OF_BATCH).max(LEAST_EXAMINED)).unwrap_or(i64::MAX)
    }
}

/// The slots of each subscription. Contacts who are notified by mail share one server, so together they get as many as one
/// subscription: a server that hangs must not stop the rest. Nor must all contacts, or all subscriptions that are failing.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    limits: Limits,
    taken: usize,
    of: HashMap<WebhookId, usize>,
    sharing: HashMap<WebhookId, SharingReceiver>,
    taken_by_failing: usize,
    taken_by_contacts: usize,
    taken_by_mail: usize,
}

impl Slots {
    /// No slot is taken.
    pub(super) fn new(limits: Limits, sharing: Vec<SharingReceiver>) -> Self {
        let sharing = sharing.into_iter().map(|receiver| (receiver.id, receiver)).collect();
        Self {
            limits,
            taken: 0,
            of: HashMap::new(),
            sharing,
            taken_by_failing: 0,
            taken_by_contacts: 0,
            taken_by_mail: 0,
        }
    }

    pub(super) fn take(&mut self, webhook: WebhookId) {
        self.taken += 1;
        *self.of.entry(webhook).or_default() += 1;
        let Some(receiver) = self.sharing.get(&webhook) else { return };
        self.taken_by_failing += usize::from(!receiver.is_contact);
        self.taken_by_contacts += usize::from(receiver.is_contact);
        self.taken_by_mail += usize::from(receiver.is_by_mail);
    }

    pub(super) fn try_take(&mut self, due: &DueBatch) -> bool {
        let most = if due.is_failing { FAILING } else { self.limits.each };
        let has = self.of.get(&due.webhook_id).copied().unwrap_or_default();
        let is_full = self.sharing.get(&due.webhook_id).is_some_and(|receiver| self.is_kind_full(*receiver));
        let may = self.free() > 0 && has < most && !is_full;
        if may {
            self.take(due.webhook_id);
        }
        may
    }

    pub(super) fn free(&self) -> usize {
        self.limits.all.saturating_sub(self.taken)
    }

    /// Those that get no more.
    pub(super) fn full(&self) -> Vec<WebhookId> {
        let full =
            self.of.iter().filter(|(_, taken)| **taken >= self.limits.each).map(|(webhook, _)| webhook);
        let kinds =
            self.sharing.values().filter(|receiver| receiver.is_contact && self.is_kind_full(**receiver));
        full.copied().chain(kinds.map(|receiver| receiver.id)).collect()
    }

    /// Those with requests in progress.
    pub(super) fn in_progress(&self) -> Vec<WebhookId> {
        self.of.keys().copied().collect()
    }

    /// Whether subscriptions that are failing get no more.
    pub(super) fn is_failing_full(&self) -> bool {
        self.taken_by_failing >= self.limits.of_kind()
    }

    fn is_kind_full(&self, receiver: SharingReceiver) -> bool {
        if !receiver.is_contact {
            return self.is_failing_full();
        }
        let is_mail_full = receiver.is_by_mail && self.taken_by_mail >= self.limits.each;
        is_mail_full || self.taken_by_contacts >= self.limits.of_kind()
    }
}

/// Takes the slots of `reservations`, and of `claims` of batches that are not reserved.
pub(super) fn slots_of(mut slots: Slots, reservations: &[Reservation], claims: &[LiveClaim]) -> Slots {
    let reserved: HashSet<_> = reservations.iter().map(|reservation| reservation.batch_id).collect();
    reservations.iter().filter(|reservation| reservation.is_sending).for_each(|reservation| {
        slots.take(reservation.webhook_id.into());
    });
    let others = claims.iter().filter(|claim| !reserved.contains(&claim.batch_id));
    others.for_each(|claim| slots.take(claim.webhook_id));
    slots
}

/// Reserves those of `due` that fit for `holder`; returns them. Another process may have reserved others since these were
/// chosen, so they are counted again under the lock.
pub(super) async fn reserve(
    pool: &PgPool,
    holder: Uuid,
    free: Slots,
    now: DateTime<Utc>,
    claims: &[LiveClaim],
    due: Vec<DueBatch>,
) -> Result<Vec<DueBatch>, sqlx::Error> {
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await?;
    let present = webhook_slots::locked_reservations(&mut transaction, now).await?;
    let mut slots = slots_of(free, &present, claims);
    let taken: HashSet<_> = present.iter().map(|reservation| reservation.batch_id).collect();
    let fits: Vec<_> =
        due.into_iter().filter(|due| !taken.contains(&due.id) && slots.try_take(due)).collect();
    let batches = fits.iter().map(|due| (due.id, due.webhook_id.0)).collect();
    let until = now + TimeDelta::seconds(CLAIM_SECONDS);
    webhook_slots::reserve(&mut transaction, holder, until, batches).await?;
    transaction.commit().await?;
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use signalbox_domain::automation::RetryPolicy;

    use super::*;

    fn limits(all: u32, each: u32) -> Limits {
        Limits::of(&Webhooks { concurrent_requests: all, concurrent_per_subscription: each })
    }

    fn sharing(id: u128, is_contact: bool, is_by_mail: bool) -> SharingReceiver {
        SharingReceiver { id: WebhookId(Uuid::from_u128(id)), is_contact, is_by_mail }
    }

    fn due(webhook: u128, is_failing: bool) -> DueBatch {
        DueBatch {
            id: Uuid::nil(),
            webhook_id: WebhookId(Uuid::from_u128(webhook)),
            url: String::new(),
            sealed_secret: None,
            sealed_key: None,
            previous: None,
            retry: RetryPolicy::Default.into(),
            no_loopback: false,
            destination: None,
            is_failing,
        }
    }

    #[test]
    fn slots_are_limited_in_all_and_for_each_subscription() {
        let mut slots = Slots::new(limits(10, 3), Vec::new());
        let mut take = |webhook, is_failing| slots.try_take(&due(webhook, is_failing));
        assert_eq!(
            [take(1, false), take(1, false), take(1, false), take(1, false)],
            [true, true, true, false]
        );
        assert_eq!([take(2, true), take(2, true)], [true, false], "a failing one gets one");
        let others = (3..=12).filter(|webhook| take(*webhook, false)).count();
        assert_eq!((others, slots.free()), (6, 0));
        assert_eq!(slots.full(), [WebhookId(Uuid::from_u128(1))]);
    }

    #[test]
    fn contacts_by_mail_share_the_slots_of_one_subscription() {
        let by_mail = (1..=20).map(|id| sharing(id, true, true)).collect();
        let mut slots = Slots::new(limits(10, 3), by_mail);
        assert!(slots.try_take(&due(1, true)) && !slots.try_take(&due(1, true)), "one message at a time");
        let mails = (2..=20).filter(|contact| slots.try_take(&due(*contact, true))).count();
        assert_eq!((mails, slots.free(), slots.full().len()), (2, 7, 20));
        assert!(slots.try_take(&due(21, false)));
    }

    #[test]
    fn neither_failing_subscriptions_nor_contacts_take_all_slots() {
        let failing = (1..=20).map(|id| sharing(id, false, false));
        let contacts = (21..=40).map(|id| sharing(id, true, false));
        let all: Vec<_> = failing.chain(contacts).collect();
        for kind in [1..=20, 21..=40] {
            let mut slots = Slots::new(limits(10, 3), all.clone());
            let taken = kind.filter(|id| slots.try_take(&due(*id, true))).count();
            assert_eq!((taken, slots.free(), slots.in_progress().len()), (8, 2, 8));
            assert_eq!(slots.is_failing_full(), slots.full().is_empty(), "contacts are listed");
            let others = [41, 42, 43].map(|id| slots.try_take(&due(id, false)));
            assert_eq!(others, [true, true, false]);
        }
        for few in 1..5 {
            assert_eq!(limits(few, 3).of_kind(), few as usize, "there are too few to keep any");
        }
    }

    #[test]
    fn one_process_sends_up_to_ten_requests() {
        assert!(!limits(10, 3).is_shared() && limits(11, 3).is_shared());
        assert_eq!(
            (limits(10, 3).most_at_a_time(), limits(4, 3).most_at_a_time(), limits(100, 3).most_at_a_time()),
            (10, 4, 10)
        );
        assert_eq!((limits(10, 3).examined(10), limits(100, 50).examined(100)), (200, 3200));
        assert_eq!((limits(100, 50).examined(1), limits(100, 50).examined(10)), (200, 640));
        assert_eq!(limits(2, 3).each, 2, "one subscription gets no more than all together");
    }

    #[test]
    fn a_claim_without_a_reservation_takes_a_slot() {
        let [one, two, three] = [1, 2, 3].map(Uuid::from_u128);
        let reservation =
            |batch_id, is_sending| Reservation { batch_id, webhook_id: Uuid::nil(), is_sending };
        let claim = |batch_id| LiveClaim { batch_id, webhook_id: WebhookId(Uuid::nil()) };
        let reservations = [reservation(one, true), reservation(two, false)];
        let slots =
            slots_of(Slots::new(limits(20, 3), Vec::new()), &reservations, &[one, two, three].map(claim));
        assert_eq!(slots.free(), 18, "of the second one the requests have ended");
    }
}
