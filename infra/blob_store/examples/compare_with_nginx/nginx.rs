use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    time::Instant,
};

use crate::{Result, Server, free_address};

pub fn start(folder: &Path) -> Result<Server> {
    let address = free_address()?;
    fs::create_dir_all(folder.join("root"))?;
    let config = folder.join("nginx.conf");
    fs::write(&config, configuration(folder, &address.to_string()))?;
    Server::start(Command::new("nginx").arg("-p").arg(folder).arg("-c").arg(config), address)
}

/// Seconds to make the last upload durable, which nginx leaves out.
pub fn sync(folder: &Path) -> Result<f64> {
    let start = Instant::now();
    File::open(folder.join("root/file"))?.sync_all()?;
    Ok(start.elapsed().as_secs_f64())
}

fn configuration(folder: &Path, address: &str) -> String {
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
