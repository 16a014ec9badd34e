use bytes::Bytes;
use futures::StreamExt;
use object_store::{Error, ObjectStoreExt, PutMode, PutResult, path::Path};

use super::{RemoteStore, upload::new_writer};

const FOLDER: &str = ".check";
const FIRST: Bytes = Bytes::from_static(b"first");
const SECOND: Bytes = Bytes::from_static(b"second");

/// Why a bucket cannot hold files.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The bucket cannot be reached, or refuses.
    #[error("it is not possible to {action} objects: {source}")]
    Refused {
        /// The refused operation.
        action: &'static str,
        source: Error,
    },
    /// The server ignores the conditions of conditional writes. Concurrent uploads would mix.
    #[error("its server ignores the conditions of writes (If-None-Match and If-Match)")]
    Unconditional,
    /// The server returns other bytes than were written.
    #[error("an object does not come back as it was written")]
    Altered,
}

impl RemoteStore {
    pub(crate) async fn check(&self) -> Result<(), CheckError> {
        let path = self.0.path.clone().join(FOLDER).join(new_writer().simple().to_string());
        let first = self.bucket().put_opts(&path, FIRST.into(), PutMode::Create.into()).await;
        let first = first.map_err(refused("write"))?;
        let checked = self.check_object(&path, first).await;
        let deleted = self.bucket().delete(&path).await;
        checked?;
        deleted.map_err(refused("delete"))
    }

    async fn check_object(&self, path: &Path, first: PutResult) -> Result<(), CheckError> {
        let put =
            async |bytes: Bytes, mode: PutMode| self.bucket().put_opts(path, bytes.into(), mode.into()).await;
        must_fail(put(SECOND, PutMode::Create).await)?;
        put(SECOND, PutMode::Update(first.clone().into())).await.map_err(refused("write"))?;
        must_fail(put(FIRST, PutMode::Update(first.into())).await)?;
        let read = async { self.bucket().get(path).await?.bytes().await };
        if read.await.map_err(refused("read"))? != SECOND {
            return Err(CheckError::Altered);
        }
        let folder = self.0.path.clone().join(FOLDER);
        let mut listed = self.bucket().list(Some(&folder));
        while let Some(object) = listed.next().await {
            if object.map_err(refused("list"))?.location == *path {
                return Ok(());
            }
        }
        Err(CheckError::Altered)
    }
}

fn refused(action: &'static str) -> impl Fn(Error) -> CheckError {
    move |source| CheckError::Refused { action, source }
}

fn must_fail<T>(put: Result<T, Error>) -> Result<(), CheckError> {
    match put {
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(()),
        Ok(_) => Err(CheckError::Unconditional),
        Err(source) => Err(CheckError::Refused { action: "write", source }),
    }
}
