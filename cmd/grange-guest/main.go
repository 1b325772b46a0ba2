// Command grange-guest runs jobs in a VM that grange made. Its one option is --version. Under the name
// srun it is that program for the jobs. `grange selftest` runs its probes, in VMs and on the host,
// `grange network check` its answers, `grange gateway bench` its load, and `grange bench` its work.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/internal/bench/work"
	"github.com/grange-project/grange/internal/filebench/load"
	"github.com/grange-project/grange/internal/guest/inside"
	"github.com/grange-project/grange/internal/netbench/answerer"
	"github.com/grange-project/grange/internal/selftest/probe"
	"github.com/grange-project/grange/internal/version"
)

func main() {
	if os.Args[0] == inside.TrampolineName {
		os.Exit(inside.Trampoline(os.Args))
	}
	if filepath.Base(os.Args[0]) == inside.StepName {
		os.Exit(inside.Srun(os.Args[1:]))
	}
	// a kernel's words reach process 1 as arguments
	if len(os.Args) == 2 && os.Args[1] == "--version" && os.Getpid() != 1 {
		fmt.Println("grange-guest", version.Long())
		return
	}
	if len(os.Args) > 1 && os.Args[1] == probe.Name && os.Getpid() != 1 {
		os.Exit(probe.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == answerer.Name && os.Getpid() != 1 {
		os.Exit(answerer.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == work.Name && os.Getpid() != 1 {
		os.Exit(work.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == load.Name && os.Getpid() != 1 {
		os.Exit(load.Main(os.Args[2:]))
	}
	if err := inside.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "grange-guest:", err)
		os.Exit(1) // as process 1 this is a kernel panic, which the host sees and shows
	}
}
