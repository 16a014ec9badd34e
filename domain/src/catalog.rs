//! The catalogue of all aggregates and all kinds of events. Lists of them elsewhere are matches over these enums, so that one
//! that is added here, or to an aggregate, is decided everywhere before the program compiles.

use crate::{
    automation, extraction, fleet, identity,
    kernel::{Decider, EventKind, KindOf},
    monitoring, transfer,
};

/// Work that is done for an aggregate whose type is known only at run time.
pub trait Visitor {
    type Output;

    fn visit<D: Decider>(self) -> Self::Output;
}

macro_rules! catalog {
    ($($name:ident $context:ident: $($aggregate:ident,)+;)+) => {
        /// A context, with one read model and one subject for commands.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Context {
            $($name,)+
        }

        impl Context {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
            /// The words of all of them.
            pub const WORDS: &'static [&'static str] = &[$(stringify!($context),)+];

            /// Stable name.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($context),)+
                }
            }

            /// The words of its aggregates.
            pub const fn aggregates(self) -> &'static [&'static str] {
                match self {
                    $(Self::$name => &[$($context::$aggregate::TYPE,)+],)+
                }
            }
        }

        /// An aggregate.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Aggregate {
            $($($aggregate,)+)+
        }

        /// A kind of event of any aggregate.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($($aggregate(KindOf<$context::$aggregate>),)+)+
        }

        impl Aggregate {
            /// All of them.
            pub const ALL: &'static [Self] = &[$($(Self::$aggregate,)+)+];

            /// Stable name in the log.
            pub const fn word(self) -> &'static str {
                match self {
                    $($(Self::$aggregate => $context::$aggregate::TYPE,)+)+
                }
            }

            /// The context that it belongs to.
            pub const fn context(self) -> Context {
                match self {
                    $($(Self::$aggregate => Context::$name,)+)+
                }
            }

            /// Kinds of its events.
            pub fn kinds(self) -> Vec<Kind> {
                match self {
                    $($(Self::$aggregate => {
                        let kinds: &[KindOf<$context::$aggregate>] = EventKind::ALL;
                        kinds.iter().copied().map(Kind::$aggregate).collect()
                    })+)+
                }
            }

            /// Does the work of `visitor` for this aggregate.
            pub fn accept<V: Visitor>(self, visitor: V) -> V::Output {
                match self {
                    $($(Self::$aggregate => visitor.visit::<$context::$aggregate>(),)+)+
                }
            }
        }

        impl Kind {
            /// The aggregate that has such events.
            pub const fn aggregate(self) -> Aggregate {
                match self {
                    $($(Self::$aggregate(_) => Aggregate::$aggregate,)+)+
                }
            }

            /// Stable name in the log.
            pub fn word(self) -> &'static str {
                match self {
                    $($(Self::$aggregate(kind) => kind.word(),)+)+
                }
            }

            /// Version of the payload that is written now.
            pub fn version(self) -> &'static str {
                match self {
                    $($(Self::$aggregate(kind) => kind.version(),)+)+
                }
            }
        }
    };
}

catalog! {
    Automation automation: Alarm, Contact, DeliveryBatch, Health, ReportedReading, Rule, Webhook,;
    Extraction extraction: ExtractionJob,;
    Fleet fleet: Firmware, PluginInstance, PluginPackage,;
    Identity identity: ApiToken, Session, User,;
    Monitoring monitoring: Channel, Dashboard, Experiment, LogEntry,;
    Transfer transfer: Agent, AgentToken, Job, Transfer,;
}

impl Aggregate {
    /// The aggregate that the log calls `word`.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|aggregate| aggregate.word() == word)
    }
}

impl Context {
    /// The context that is called `word`.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|context| context.word() == word)
    }
}

impl Kind {
    /// All kinds of all aggregates.
    pub fn all() -> impl Iterator<Item = Self> {
        Aggregate::ALL.iter().flat_map(|aggregate| aggregate.kinds())
    }

    /// Words of the kinds that `decide` accepts, in their order.
    pub fn words_where(decide: impl Fn(Self) -> bool) -> Vec<&'static str> {
        let mut words: Vec<_> = Self::all().filter(|kind| decide(*kind)).map(Self::word).collect();
        words.sort_unstable();
        words
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    struct ContextOf;

    impl Visitor for ContextOf {
        type Output = &'static str;

        fn visit<D: Decider>(self) -> &'static str {
            D::CONTEXT
        }
    }

    #[test]
    fn aggregates_name_the_context_that_lists_them() {
        for aggregate in Aggregate::ALL {
            assert_eq!(aggregate.accept(ContextOf), aggregate.context().word(), "{aggregate:?}");
        }
    }

    #[test]
    fn words_name_one_thing_each() {
        let aggregates: BTreeSet<_> = Aggregate::ALL.iter().map(|aggregate| aggregate.word()).collect();
        assert_eq!(aggregates.len(), Aggregate::ALL.len());
        let words: BTreeSet<_> = Kind::all().map(Kind::word).collect();
        assert_eq!(words.len(), Kind::all().count());
        assert!(words.len() > 100, "{}", words.len());
    }
}
