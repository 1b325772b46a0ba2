package gateways

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/cli/output"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/filebench"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

// endLimit is for a process that is to end.
const endLimit = time.Minute

// maxAnswer bounds what is read of a measurement.
const maxAnswer = 1 << 20

// measureAs has this program measure as a user, and reads what it prints. We ourselves do nothing in the directory,
// which may be anybody's.
func (a gatewayCommands) measureAs(ctx context.Context, f benchFlags) (m filebench.Measurement, err error) {
	user, groups, err := f.measurer(ctx)
	if err != nil {
		return m, err
	}
	self, err := os.Executable()
	if err != nil {
		return m, err
	}
	out, to, err := os.Pipe()
	if err != nil {
		return m, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return m, err
	}
	defer null.Close()
	said, say, err := os.Pipe() // not our terminal: its user may trace the process
	if err != nil {
		return m, errors.Join(err, to.Close())
	}
	argv := []string{self, "gateway", "bench", "--json", "--socket", a.Socket, "--dir", f.dir, "--size", f.size,
		"--files", strconv.Itoa(f.files), "--time", f.time.String(), "--rounds", strconv.Itoa(f.rounds), "--image", f.image}
	process, err := os.StartProcess(self, argv, &os.ProcAttr{Dir: "/", Files: []*os.File{null, to, say},
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/"},
		Sys: &syscall.SysProcAttr{Setsid: true,
			Credential: &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: groups}}})
	to.Close()
	say.Close()
	go a.repeat(said)
	if err != nil {
		return m, fmt.Errorf("measure as %s: %w", user.Name, err)
	}
	defer context.AfterFunc(ctx, func() {
		process.Signal(syscall.SIGTERM)
		time.AfterFunc(endLimit, func() { process.Kill(); out.Close() }) // a stopped one ends too
	})()
	text, readErr := io.ReadAll(io.LimitReader(out, maxAnswer))
	out.Close() // what prints more must not wait for us
	state, err := process.Wait()
	switch {
	case err != nil:
		return m, err
	case ctx.Err() != nil:
		return m, context.Cause(ctx)
	case !state.Success():
		return m, &farm.Error{Kind: farm.Unavailable, Code: filebench.CodeBench,
			Message: fmt.Sprintf("measuring as %s failed; see above", user.Name), Hint: "name another --user or --dir"}
	case readErr != nil:
		return m, readErr
	}
	var all []filebench.Measurement
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 1 || all[0].FileSystem == "" {
		return m, fmt.Errorf("what was measured as %s cannot be read: %w", user.Name, err)
	}
	m = all[0]
	return m, f.own(&m)
}

// repeat prints what another user's process says, as plain text.
func (a gatewayCommands) repeat(said *os.File) {
	defer said.Close()
	for lines := bufio.NewScanner(said); lines.Scan(); {
		fmt.Fprintln(a.Err, output.Visible(lines.Text()))
	}
}

// own puts what we know ourselves in the place of what a user's process says of a measurement.
func (f benchFlags) own(m *filebench.Measurement) error {
	is, err := typeOf(f.dir)
	if err != nil {
		return err
	}
	if is != m.FileSystem {
		return fmt.Errorf("%s was measured on %q, and is on %q here", f.dir, m.FileSystem, is)
	}
	m.Command, m.Kernel = f.command(), kernelRelease()
	for g, why := range m.Left {
		m.Left[g] = output.Visible(why)
	}
	return nil
}

// measurer is who measures for root, with all groups.
func (f benchFlags) measurer(ctx context.Context) (u names.User, groups []uint32, err error) {
	service := names.New(program.Start)
	if f.user != "" {
		u, err = service.Named(ctx, f.user)
	} else {
		info, statErr := os.Stat(f.dir)
		if statErr != nil {
			return u, nil, statErr
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		if owner == 0 {
			u, err = service.Named(ctx, "nobody")
		} else {
			u, err = service.User(ctx, owner)
		}
	}
	if err != nil {
		return u, nil, err
	}
	if u.UID == 0 {
		return u, nil, &farm.Error{Kind: farm.Invalid, Code: filebench.CodeBench, Message: "root cannot be measured as",
			Hint: "virtiofs serves nothing of root: name another --user"}
	}
	text, err := program.Start(ctx, program.Call{Path: "id", Args: []string{"-G", "--", u.Name}})
	for _, word := range strings.Fields(string(text)) {
		gid, e := strconv.ParseUint(word, 10, 32)
		if e != nil {
			return u, nil, e
		}
		groups = append(groups, uint32(gid))
	}
	return u, groups, err
}
