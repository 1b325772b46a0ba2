// Command signals prints the signals that were ignored and blocked when it started.
package main

import (
	"fmt"

	"github.com/grange-project/grange/internal/inherited"
)

func main() {
	p := inherited.Process()
	fmt.Printf("%x %x\n", p.Ignored, p.Blocked)
}
