use sqlx::Error;

/// Classes of SQLSTATE that blame the values of a statement, or a row that it touches: cardinality violation, data exception,
/// integrity constraint, check option, external routine, program limit exceeded, PL/pgSQL, internal error.
const OF_VALUES: [&str; 9] = ["21", "22", "23", "38", "39", "44", "54", "P0", "XX"];

/// SQLSTATE of a lock that was not granted in time, and of a deadlock.
const LOCK_CONFLICTS: [&str; 2] = ["55P03", "40P01"];

/// SQLSTATE of a disk without space.
const DISK_FULL: &str = "53100";

/// Whether `error` reports a lock conflict, so that the statement may succeed later.
pub fn is_lock_conflict(error: &Error) -> bool {
    error
        .as_database_error()
        .and_then(|error| error.code())
        .is_some_and(|code| LOCK_CONFLICTS.contains(&code.as_ref()))
}

/// Whether the database's disk had no space for a statement, so that it succeeds once there is some.
pub fn is_disk_full(error: &Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == DISK_FULL)
}

/// Whether `error` is caused by the values of a statement, so that other values may succeed and the same ones will
/// not. Everything else (a lost connection, a full disk, a conflict, a timeout, a missing table) concerns the
/// database, and the same statement may succeed later.
pub fn is_refusal(error: &Error) -> bool {
    match error {
        Error::ColumnDecode { .. } | Error::Decode(_) | Error::Encode(_) => true,
        Error::Database(error) => {
            error.code().is_some_and(|code| OF_VALUES.iter().any(|class| code.starts_with(class)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_connections_are_no_refusals() {
        assert!(!is_refusal(&Error::PoolTimedOut));
        assert!(!is_refusal(&Error::Io(std::io::ErrorKind::ConnectionReset.into())));
        assert!(is_refusal(&Error::Decode("not a number".into())));
    }
}
