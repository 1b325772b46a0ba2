// Command half is the part of the gateways' contract that runs in a VM, as root there: the host sends what is to be
// tried on its standard input. With the word "busy" it uses a directory until it is ended, with
// "garbage" it sends the host what no guest does.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/grange-project/grange/internal/gateway/gatewaytest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "half:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(0, 0, 0), syscall.Setresuid(0, 0, 0))
	switch {
	case err != nil:
		return fmt.Errorf("become root: %w", err)
	case len(args) == 2 && args[0] == "busy":
		return busy(args[1])
	case len(args) == 2 && args[0] == "garbage":
		seed, err := strconv.ParseUint(args[1], 10, 64)
		return errors.Join(err, garbage(seed))
	}
	return gatewaytest.Half(os.Stdin, os.Stdout)
}

// busy writes, renames and deletes for ever.
func busy(dir string) error {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	text := make([]byte, 1<<20)
	for n := 0; ; n++ {
		if err := errors.Join(os.WriteFile(a, text, 0o644), os.Rename(a, b), os.Remove(b)); err != nil {
			return err
		}
		if n == 3 {
			fmt.Println("busy")
		}
	}
}
