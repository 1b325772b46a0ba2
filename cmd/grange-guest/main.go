// Command grange-guest runs one job in a VM that grange made. It has no options.
package main

import (
	"fmt"
	"os"

	"github.com/grange-project/grange/internal/guest/inside"
)

func main() {
	if os.Args[0] == inside.TrampolineName {
		os.Exit(inside.Trampoline(os.Args))
	}
	if err := inside.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "grange-guest:", err)
		os.Exit(1) // as process 1 this is a kernel panic, which the host sees and shows
	}
}
