//! The store on a real disk and in a bucket of a real S3 server, one file per behaviour.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation is a failed test")]

/// Runs each test, a function of a fixture, with a store in a folder and with one in a bucket.
macro_rules! in_both_places {
    ($($test:ident)*) => {
        mod in_a_folder {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::support::Fixture::in_a_folder()).await;
            })*
        }

        mod in_a_bucket {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::support::Fixture::in_a_bucket().await).await;
            })*
        }
    };
}

mod bucket;
mod delete;
mod overlap;
mod read;
mod resume;
mod support;
mod upload;
