//! Go programs, whose own table names their functions when they are stripped.

#![allow(clippy::unwrap_used)]

use std::{path::PathBuf, process::Command};

use speed_bump_testing::{Attached, Service, session::obstacle, skip};

const SOURCE: &str = r#"
package main

import (
    "bufio"
    "fmt"
    "os"
    "strconv"
)

type Server struct{ total int }

//go:noinline
func (s *Server) handle(x int) int { s.total += x; return s.total }

//go:noinline
func plain(x int) int { return x * 3 }

func main() {
    server := &Server{}
    fmt.Println(`{"event":"ready"}`)
    for in := bufio.NewScanner(os.Stdin); in.Scan(); {
        times, _ := strconv.Atoi(in.Text())
        for i := 0; i < times; i++ {
            plain(server.handle(i))
        }
        fmt.Println(`{"event":"done"}`)
    }
}
"#;

#[test]
fn functions_of_a_stripped_go_program_are_counted() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if Command::new("go").arg("version").output().is_err() {
        return skip!("no Go compiler");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("main.go"), SOURCE).unwrap();
    for (name, mode) in [("fixed", "exe"), ("moved", "pie")] {
        let program: PathBuf = folder.path().join(name);
        let mut go = Command::new("go");
        go.args(["build", "-buildmode", mode, "-ldflags", "-s -w", "-o"]).arg(&program).arg("main.go");
        go.env("GOCACHE", folder.path().join("cache")).env("GO111MODULE", "off").env("GOPROXY", "off");
        let built = go.current_dir(folder.path()).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let sections = Command::new("readelf").args(["-SW"]).arg(&program).output().unwrap();
        assert!(!String::from_utf8(sections.stdout).unwrap().contains(".symtab"), "{name} is not stripped");

        let mut service = Service::start(&mut Command::new(&program)).unwrap();
        let targets = format!("native:*/{name}:main.(*Server).handle\nnative:*/{name}:main.plain\n");
        let session = Attached::start(service.pid(), &targets, &["--strict"]).unwrap();
        service.ask("1000").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!([ended.counts(0), ended.counts(1)], [(1000, 1000); 2], "{name}");
        assert_eq!(ended.functions(0), ["main.(*Server).handle"]);
        service.ask("3").unwrap();
    }
}
