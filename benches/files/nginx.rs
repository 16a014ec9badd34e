use std::{
    fs::{self, File},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::ensure;

use crate::{
    load::Connection,
    system::{Program, free_address, wait_until},
};

/// A running nginx; it ends with this.
pub struct Nginx {
    /// Where it listens.
    pub address: SocketAddr,
    folder: PathBuf,
    process: Option<Program>,
}

/// Starts nginx in a folder of its own; `None` when it is not installed.
pub async fn start(parent: &Path) -> anyhow::Result<Option<Nginx>> {
    let version = Command::new("nginx").arg("-v").stderr(Stdio::null()).status();
    if version.is_err() {
        return Ok(None);
    }
    let (address, folder) = (free_address()?, parent.join("nginx"));
    fs::create_dir_all(folder.join("root"))?;
    let config = folder.join("nginx.conf");
    fs::write(&config, configuration(&folder, address))?;
    let arguments = ["-p".into(), folder.clone(), "-c".into(), config];
    let process = Program::start(Path::new("nginx"), &arguments, &[], &folder.join("log"))?;
    let listens = || async move { Ok(TcpStream::connect(address).is_ok()) };
    wait_until("the start of nginx", Duration::from_secs(10), listens).await?;
    Ok(Some(Nginx { address, folder, process: Some(process) }))
}

impl Nginx {
    /// Seconds to make the last upload durable.
    pub fn sync(&self) -> anyhow::Result<f64> {
        let start = Instant::now();
        File::open(self.folder.join("root/file"))?.sync_all()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Deletes the file.
    pub fn delete(&self) -> anyhow::Result<()> {
        let request = "DELETE /file HTTP/1.1\r\nHost: bench\r\n\r\n";
        let (status, _) = Connection::open(self.address)?.call(request.as_bytes())?;
        ensure!(status == 204, "a deletion was answered with {status}");
        Ok(())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It is asked to end, because a killed nginx leaves its workers behind.
        if let Some(process) = self.process.take() {
            process.stop();
        }
    }
}

fn configuration(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off; user root; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; sendfile on; tcp_nopush on;
  client_max_body_size 0; client_body_buffer_size 1m; client_body_temp_path {folder}/temp;
  proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen {address}; location / {{ root {folder}/root; dav_methods PUT DELETE; }} }}
}}
"
    )
}
