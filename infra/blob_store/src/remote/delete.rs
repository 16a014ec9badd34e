use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{Error, path::Path};
use uuid::Uuid;

use super::{BucketContext, RECORD, RemoteStore, record::Segment, slot::Slot};
use crate::{BlobError, BlobKey};

/// Holds a mark for each transfer that was deleted, until a sweep has looked at it again.
const DELETED: &str = ".deleted";
/// Records that are read at the same time.
const RECORDS: usize = 16;

impl RemoteStore {
    /// The records are deleted first: from then on no upload can add to a file and no reader can start.
    ///
    /// A segment that an upload is writing at this moment is deleted by that upload, when it sees that the record is
    /// gone. If it is killed before, a later [`Self::sweep`] finds its remains by the mark.
    pub(crate) async fn delete_transfer(&self, transfer: Uuid) -> Result<(), BlobError> {
        let objects = self.objects(&self.transfer_path(transfer)).await?;
        if objects.is_empty() {
            return Ok(());
        }
        self.put(&self.mark_path(transfer), Bytes::new()).await.doing("mark a deletion")?;
        let records = objects.into_iter().filter(|path| path.filename() == Some(RECORD)).collect();
        self.delete(records).await?;
        self.bury(transfer).await
    }

    /// Looks once more at the transfers that had been deleted when this was done last: do it every few minutes, which is longer
    /// than any upload needs to see a deletion. One transfer that cannot be looked at keeps no other; it is tried again.
    pub(crate) async fn sweep(&self) -> Result<(), BlobError> {
        let mut seen = self.0.marks.lock().await;
        let marks = self.objects(&self.0.path.clone().join(DELETED)).await?;
        let marked = marks.iter().filter_map(|path| Uuid::try_parse(path.filename()?).ok());
        let (old, mut new): (HashSet<_>, HashSet<_>) = marked.partition(|transfer| seen.contains(transfer));
        let mut failed = None;
        for transfer in old {
            if let Err(error) = self.bury_last(transfer).await {
                new.insert(transfer);
                failed = Some(error);
            }
        }
        *seen = new;
        failed.map_or(Ok(()), Err)
    }

    /// Deletes the dead segments of `transfer` and then its mark.
    async fn bury_last(&self, transfer: Uuid) -> Result<(), BlobError> {
        self.bury(transfer).await?;
        self.delete(vec![self.mark_path(transfer)]).await
    }

    /// Deletes the garbage segments of `transfer`.
    async fn bury(&self, transfer: Uuid) -> Result<(), BlobError> {
        let folder = self.transfer_path(transfer);
        let mut files: HashMap<String, Vec<(Uuid, Path)>> = HashMap::new();
        for path in self.objects(&folder).await? {
            let Some(mut parts) = path.prefix_match(&folder) else { continue };
            let (file, name) = (parts.next(), parts.next());
            if let (Some(file), Some(name)) = (file, name)
                && let Some(writer) = Segment::writer_of(name.as_ref())
            {
                files.entry(file.as_ref().to_owned()).or_default().push((writer, path.clone()));
            }
        }
        // The records are read after the segments were listed, and each names its writer before that writer's first
        // segment exists. So a segment is not garbage only because its record is not complete yet.
        let dead: Vec<Vec<Path>> = stream::iter(files)
            .map(|(file, segments)| self.dead(BlobKey::of_file(transfer, file), segments))
            .buffer_unordered(RECORDS)
            .try_collect()
            .await?;
        self.delete(dead.concat()).await
    }

    /// Those of `segments` that are neither in the record of `key` nor of the upload that is in progress.
    async fn dead(&self, key: BlobKey, segments: Vec<(Uuid, Path)>) -> Result<Vec<Path>, BlobError> {
        let record = Slot::load(self, &key).await?.record;
        let named: HashSet<_> = record.segments().map(|segment| self.segment_path(&key, &segment)).collect();
        let is_dead =
            |(writer, path): &(Uuid, Path)| record.writer() != Some(*writer) && !named.contains(path);
        Ok(segments.into_iter().filter(is_dead).map(|(_, path)| path).collect())
    }

    async fn objects(&self, folder: &Path) -> Result<Vec<Path>, BlobError> {
        let listed = self.bucket().list(Some(folder)).map_ok(|object| object.location);
        listed.try_collect().await.doing("list files")
    }

    pub(super) async fn delete(&self, paths: Vec<Path>) -> Result<(), BlobError> {
        let paths = stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut deleted = self.bucket().delete_stream(paths);
        while let Some(result) = deleted.next().await {
            match result {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error).doing("delete files"),
            }
        }
        Ok(())
    }

    fn mark_path(&self, transfer: Uuid) -> Path {
        self.0.path.clone().join(DELETED).join(transfer.hyphenated().to_string())
    }
}
