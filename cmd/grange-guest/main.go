// Command grange-guest runs jobs in a VM that grange made. It has no options. Under the name srun it is that program for the jobs.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/internal/guest/inside"
)

func main() {
	if os.Args[0] == inside.TrampolineName {
		os.Exit(inside.Trampoline(os.Args))
	}
	if filepath.Base(os.Args[0]) == inside.StepName {
		os.Exit(inside.Srun(os.Args[1:]))
	}
	if err := inside.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "grange-guest:", err)
		os.Exit(1) // as process 1 this is a kernel panic, which the host sees and shows
	}
}
