use cqrs_es::DomainEvent;

use super::Decider;

/// An event, which has a kind.
pub trait Event: DomainEvent {
    type Kind: EventKind;

    fn kind(&self) -> Self::Kind;
}

/// The kinds of events of one aggregate.
pub trait EventKind: Copy + Eq + std::fmt::Debug + Send + Sync + 'static {
    /// All of them, in the order of their declaration.
    const ALL: &'static [Self];

    /// Stable name in the log.
    fn word(self) -> &'static str;

    /// Version of the payload that is written now.
    fn version(self) -> &'static str;
}

/// The kinds of events of the aggregate `D`.
pub type KindOf<D> = <<D as Decider>::Event as Event>::Kind;

/// The words of the kinds of `K` that `decide` accepts.
pub fn words_of<K: EventKind>(decide: impl Fn(K) -> bool) -> Vec<&'static str> {
    K::ALL.iter().copied().filter(|kind| decide(*kind)).map(EventKind::word).collect()
}

/// Declares the kinds of an event, each with its stable word and the version of its payload. A variant of the event without
/// a kind does not compile.
macro_rules! event_kinds {
    ($event:ident, $kind:ident { $($(#[$note:meta])* $variant:ident = $word:literal, $version:literal;)+ }) => {
        #[doc = concat!("Kinds of [`", stringify!($event), "`].")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $kind {
            $($(#[$note])* $variant,)+
        }

        impl $crate::kernel::EventKind for $kind {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            fn version(self) -> &'static str {
                match self {
                    $(Self::$variant => $version,)+
                }
            }
        }

        impl $crate::kernel::Event for $event {
            type Kind = $kind;

            fn kind(&self) -> $kind {
                match self {
                    $(Self::$variant { .. } => $kind::$variant,)+
                }
            }
        }

        impl cqrs_es::DomainEvent for $event {
            fn event_type(&self) -> String {
                $crate::kernel::EventKind::word($crate::kernel::Event::kind(self)).to_owned()
            }

            fn event_version(&self) -> String {
                $crate::kernel::EventKind::version($crate::kernel::Event::kind(self)).to_owned()
            }
        }
    };
}

pub(crate) use event_kinds;
