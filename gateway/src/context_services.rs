//! Services that the handlers of one context share.

/// Defines services that the handlers of one context share, and lets handlers ask for them: parts of the gateway's, and after
/// a semicolon services that are defined like this too.
macro_rules! services {
    ($(#[$doc:meta])* $name:ident { $($part:ident: $type:ty),+ $(,)? $(; $($whole:ident: $made:ty),+ $(,)?)? }) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub(crate) struct $name {
            $(pub(crate) $part: $type,)+
            $($(pub(crate) $whole: $made,)+)?
        }

        impl ::axum::extract::FromRef<$crate::state::Services> for $name {
            fn from_ref(services: &$crate::state::Services) -> Self {
                Self {
                    $($part: services.$part.clone(),)+
                    $($($whole: ::axum::extract::FromRef::from_ref(services),)+)?
                }
            }
        }
    };
}
pub(crate) use services;
