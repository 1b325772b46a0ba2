// Command signals prints the signals that were ignored and blocked when it started, and its standard files that were
// /dev/null and closed.
package main

import (
	"fmt"
	"os"

	"github.com/grange-project/grange/internal/inherited"
)

func main() {
	p := inherited.Process()
	null, closed := inherited.Files(os.Stdin, os.Stdout, os.Stderr)
	fmt.Printf("%x %x %b %b\n", p.Ignored, p.Blocked, null, closed)
}
