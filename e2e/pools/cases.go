package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/pty"
	"github.com/grange-project/grange/internal/shell"
)

// session starts one for alice, and waits for its shell.
func (b *bench) session(ctx context.Context, args ...string) (*terminal, error) {
	t, err := b.open(ctx, alice, append([]string{"shell"}, args...)...)
	if err != nil {
		return nil, err
	}
	b.vms++
	return t, t.does(ctx, "echo is up: $((40+2))", "is up: 42")
}

// shellWorks: oneself, with one's home, in a VM of the pool, on a terminal.
func shellWorks(ctx context.Context, b *bench) (err error) {
	if b.main, err = b.session(ctx, "--publish", "8080", "--publish", "8080@friends", "--publish",
		"8080@hosts"); err != nil {
		return err
	}
	if err := b.main.does(ctx, "id -u", fmt.Sprint(alice), "pwd", b.home, "touch made && echo made $((0+1))", "made 1",
		"tty",
		"/dev/pts/", "echo pool:$GRANGE_POOL:", "pool::", "mark=kept", ""); err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(b.home, "made"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != alice {
		return fmt.Errorf("the home directory has not what the VM made: %v, %v", info, err)
	}
	out, err := b.grange(ctx, alice, "vm", "list", "--json")
	if err != nil || !strings.Contains(out, `"pool": "default"`) {
		return fmt.Errorf("the VM's pool is not shown: %s %v", out, err)
	}
	return nil
}

func resized(ctx context.Context, b *bench) error {
	if err := b.main.does(ctx, "stty size", "30 90"); err != nil {
		return err
	}
	if err := pty.Resize(b.main.file, 41, 123); err != nil {
		return err
	}
	return b.main.hasSize(ctx, "41 123")
}

// hasSize asks the VM until its terminal has the size: that comes beside what is typed.
func (t *terminal) hasSize(ctx context.Context, size string) error {
	for {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := t.does(once, "stty size", size)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// serve answers each connection with a word, in the VM.
func serve(port string) error {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	fmt.Println("serves")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			word := make([]byte, 5)
			if _, err := io.ReadFull(c, word); err == nil {
				fmt.Fprintf(c, "the VM got %s\n", word)
			}
		}()
	}
}

// connect prints what a port answers to a word, as whoever runs this.
func connect(at, word string) error {
	c, err := net.DialTimeout("tcp", at, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte(word)); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	fmt.Print(string(answer))
	return err
}

// publishes: the owner reaches the port, others and root do not, unless the owner publishes it to them.
func publishes(ctx context.Context, b *bench) error {
	if err := b.main.does(ctx, b.program()+" serve 8080 &", "serves"); err != nil {
		return err
	}
	for whom, users := range map[string]map[uint32]bool{"for you alone": {alice: true, bob: false, 0: false},
		"for you and friends": {alice: true, bob: true, 0: false}, "for hosts": {alice: true, bob: true, 0: true}} {
		before, _, ok := strings.Cut(b.main.tail(), " here, "+whom)
		at := before[strings.LastIndex(before, " ")+1:]
		if !ok {
			return fmt.Errorf("the terminal does not say where the port is %s: %s", whom, b.main.tail())
		}
		for user, may := range users {
			if got := b.connectAs(ctx, user, at, "hello"); may != (got == "the VM got hello\n") || got != "" && !may {
				return fmt.Errorf("user %d got %q at %s, which is %s", user, got, at, whom)
			}
		}
	}
	return nil
}

// connectAs is what a port answers a user's word.
func (b *bench) connectAs(ctx context.Context, user uint32, at, word string) string {
	cmd := exec.CommandContext(ctx, b.program(), "connect", at, word)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, _ := cmd.Output()
	return string(out)
}

// sessions are those of a user, as the command line has them.
func (b *bench) sessions(ctx context.Context, user int) (all []shell.Session, err error) {
	out, err := b.command(ctx, user, "shell", "list", "--json").Output()
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(out, &all)
}

func detaches(ctx context.Context, b *bench) error {
	if err := errors.Join(b.main.line(""), b.main.line("~d")); err != nil {
		return err
	}
	if err := b.main.ends(ctx, 0); err != nil {
		return err
	}
	all, err := b.sessions(ctx, alice)
	if err != nil || len(all) != 1 || all[0].Attached || all[0].Pool != "default" {
		return fmt.Errorf("the sessions are %+v, %v", all, err)
	}
	return nil
}

// goesOn: neither the detached terminal nor the agent's death is noticed in the VM.
func goesOn(ctx context.Context, b *bench) (err error) {
	b.host.KillAgent()
	if err := b.host.StartAgent(ctx); err != nil {
		return err
	}
	if b.main, err = b.open(ctx, alice, "shell", "attach"); err != nil {
		return err
	}
	return errors.Join(b.main.does(ctx, "echo mark is $mark", "mark is kept"), b.main.hasSize(ctx, "30 90"))
}

// apart: nobody sees another's sessions, attaches to one or ends it; root neither.
func apart(ctx context.Context, b *bench) error {
	all, err := b.sessions(ctx, alice)
	if err != nil || len(all) != 1 {
		return fmt.Errorf("alice's sessions are %v, %v", all, err)
	}
	id := all[0].ID
	for _, user := range []int{bob, 0} {
		if theirs, err := b.sessions(ctx, user); err != nil || len(theirs) > 0 {
			return fmt.Errorf("user %d has sessions %v, %v", user, theirs, err)
		}
		if out, err := b.grange(ctx, user, "shell", "end", id); err == nil || !strings.Contains(out, "no-shell") {
			return fmt.Errorf("user %d ends alice's session: %s", user, out)
		}
		t, err := b.open(ctx, user, "shell", "attach", id)
		if err != nil {
			return err
		}
		if err := errors.Join(t.expect(ctx, "no-shell"), t.ends(ctx, 1)); err != nil {
			return err
		}
	}
	sockets, _ := filepath.Glob(fmt.Sprintf("/tmp/grange-shell-%d-*/*.socket", alice))
	if len(sockets) != 1 {
		return fmt.Errorf("alice's sockets are %v", sockets)
	}
	if conn, err := net.Dial("unix", sockets[0]); err == nil { // root gets past the directory, and no further
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintln(conn, `{"attach":{"rows":5,"cols":5}}`)
		if n, err := conn.Read(make([]byte, 1)); n > 0 {
			return fmt.Errorf("root was answered by alice's session, %v", err)
		}
	}
	return b.main.does(ctx, "echo still $mark", "still kept")
}

// takenOver: another terminal of the same user takes the session.
func takenOver(ctx context.Context, b *bench) error {
	second, err := b.open(ctx, alice, "shell", "attach")
	if err != nil {
		return err
	}
	if err := errors.Join(second.does(ctx, "echo second $mark", "second kept"),
		b.main.expect(ctx, "goes on at another terminal"), b.main.ends(ctx, 0)); err != nil {
		return err
	}
	b.main = second
	return nil
}

// full: a user has as many VMs of a pool as it gives, and within its size.
func full(ctx context.Context, b *bench) error {
	for what, cpus := range map[string]string{"pool-full": "1", "does not allow 2 CPUs": "2"} {
		out, err := b.grange(ctx, alice, "exec", "--pool", "default", "--cpus", cpus, "--", "true")
		if err == nil || !strings.Contains(out, what) {
			return fmt.Errorf("%s CPUs more: %v, without %q: %s", cpus, err, what, out)
		}
	}
	return nil
}

// ended: what ended while nobody was attached is told to who comes next.
func ended(ctx context.Context, b *bench) error {
	if err := errors.Join(b.main.does(ctx, "(sleep 3; echo last words; kill -9 $$) &", "", "~d", "detached"),
		b.main.ends(ctx, 0), b.noVMs(ctx)); err != nil {
		return err
	}
	t, err := b.open(ctx, alice, "shell", "attach")
	if err != nil {
		return err
	}
	return errors.Join(t.expect(ctx, "last words"), t.expect(ctx, "with status 137"), t.ends(ctx, 137))
}

func idleEnds(ctx context.Context, b *bench) error {
	t, err := b.session(ctx, "--pool", "idle")
	if err != nil {
		return err
	}
	return errors.Join(t.expect(ctx, "is not used; type something to keep it"), t.line("echo kept by typing"),
		t.expect(ctx, "kept by typing"), t.expect(ctx, "is not used; type something to keep it"),
		t.expect(ctx, "it ends now"), t.ends(ctx, 129), b.noVMs(ctx))
}

// totalEnds: neither work nor a deaf command puts it off.
func totalEnds(ctx context.Context, b *bench) error {
	t, err := b.session(ctx, "--pool", "total")
	if err != nil {
		return err
	}
	return errors.Join(t.line("trap '' HUP; while :; do :; done"), t.expect(ctx, "it ends in"),
		t.expect(ctx, "it ends now"), t.expect(ctx, "pool-time"), t.ends(ctx, 198), b.noVMs(ctx))
}

// closes: where the pool keeps nothing without a terminal, a session ends with its own.
func closes(ctx context.Context, b *bench) error {
	t, err := b.session(ctx, "--pool", "attended")
	if err != nil {
		return err
	}
	if err := t.does(ctx, "", "", "~d", "does not let this session go on"); err != nil {
		return err
	}
	return errors.Join(t.cmd.Process.Signal(syscall.SIGHUP), b.noVMs(ctx))
}

// refused: pools of others are not there, and are not had; ports are published to nobody whom the site does not name.
func refused(ctx context.Context, b *bench) error {
	out, err := b.grange(ctx, alice, "pool", "list")
	if err != nil || strings.Contains(out, "theirs") || !strings.Contains(out, "default") {
		return fmt.Errorf("alice sees: %s %v", out, err)
	}
	if out, err = b.grange(ctx, 0, "pool", "show", "theirs"); err != nil || !strings.Contains(out, "theirs") {
		return fmt.Errorf("root sees: %s %v", out, err)
	}
	for _, pool := range []string{"theirs", "none"} {
		out, err := b.grange(ctx, alice, "exec", "--pool", pool, "--", "true")
		if err == nil || !strings.Contains(out, "no-pool") {
			return fmt.Errorf("alice has a VM of %s: %s %v", pool, out, err)
		}
	}
	out, err = b.grange(ctx, alice, "exec", "--publish", "80@bob", "--", "true")
	if err == nil || !strings.Contains(out, "no-publish") {
		return fmt.Errorf("alice publishes a port to bob by the name of an account: %s %v", out, err)
	}
	return nil
}
