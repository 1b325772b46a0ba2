// Package confine starts what serves a directory of the host for a VM: as the job's user, with the job's groups and no
// capability, whatever identity a guest names in its requests; in a user namespace that knows no other user; where
// nothing of the host is to be seen but the one directory. Gateways start their own programs with it.
package confine

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grange-project/grange/internal/farm"
)

// Refused is why a directory cannot be served, and what to try.
func Refused(hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeNoGateway, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// HintFUSE is what always works.
const HintFUSE = "leave the bind's gateway out, or write gateway=fuse"

// Caller is whose rights a server has.
type Caller struct {
	UID, GID uint32
	Groups   []uint32
}

// Order is what the process that starts a server is told.
type Order struct {
	Gateway  farm.Gateway
	Program  string
	ReadOnly bool // the mount is, too
	Caller
}

// Gateway is what differs between those whose servers are started here.
type Gateway struct {
	// Launch starts the server, on a thread that stays as it is left. link is for Tend, and may be nil.
	Launch func(Inside) (link *os.File, err error)
	// Tend works beside the server, in the process that waits for its end. nil: there is nothing to do.
	Tend func(listener, link *os.File) error
}

// Inside is what a server is started with, where everything is confined already.
type Inside struct {
	Order
	Listener  *os.File // on which QEMU will call
	Null, Say *os.File // Say takes what the server says
}

// Run is the process that Start starts, by a command to which the second part adds words: it puts the directory where
// the server looks for it, starts that without what it need not have, and ends with it.
func Run(args []string, gateways map[farm.Gateway]Gateway) error {
	if len(args) == 2 && args[0] == tendWord {
		return tend(gateways[farm.Gateway(args[1])])
	}
	var o Order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return fmt.Errorf("read what to serve: %w", err)
	}
	err := launch(o, gateways[o.Gateway], append(os.Args, tendWord, string(o.Gateway)))
	fmt.Fprint(os.NewFile(reportFile, "report"), err)
	return err
}

const tendWord = "tend"

// started is what Run reports when the server runs.
const started = "started"
