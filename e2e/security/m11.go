package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

// noMounts is a policy that lets jobs bind at one place.
const noMounts = "[[policy]]\nname = \"one place\"\nmounts = [\"/allowed\"]\n"

// rejoinWithMore asks for a job, has the agent restarted before its guest is up, and asks again from another process of
// the same account: with the same ID, and a bind that the site's policy allows to nobody. That request does not count.
func rejoinWithMore(ctx context.Context, s *site) error {
	l, err := s.lab(ctx)
	if err != nil {
		return err
	}
	acc, err := s.account(1)
	if err != nil {
		return err
	}
	if err := reconfigure(ctx, l, noMounts); err != nil {
		return err
	}
	defer reconfigure(context.WithoutCancel(ctx), l, "")
	const tries = 5 // its guest may be up before the agent is killed
	for range tries {
		err := rejoin(ctx, l, acc)
		if !errors.Is(err, errTooLate) {
			return err
		}
	}
	return errTooLate
}

var errTooLate = errors.New("the guest was up before the agent was killed")

func reconfigure(ctx context.Context, l *lab.Lab, extra string) error {
	if err := l.Configure(extra); err != nil {
		return err
	}
	l.StopAgent()
	return l.StartAgent(ctx)
}

func rejoin(ctx context.Context, l *lab.Lab, acc *account) error {
	id := api.NewID()
	first := acc.act(ctx, "ask", l.Socket, id, "/allowed")
	out, err := first.StdoutPipe()
	if err != nil {
		return err
	}
	if err := first.Start(); err != nil {
		return err
	}
	defer first.Wait()
	defer first.Process.Kill()
	applied := filepath.Join(l.Dir, "run/vm", "grange-"+id[:8], "applied.json") // there from the first instruction on
	for ctx.Err() == nil {
		if _, err := os.Stat(applied); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.KillAgent()
	told := bufio.NewScanner(out)
	for told.Scan() && told.Text() != cut {
		if told.Text() == api.EventReady {
			err = errTooLate
		}
	}
	if err := errors.Join(err, l.StartAgent(ctx)); err != nil {
		return err
	}
	if err := syscall.Kill(first.Process.Pid, 0); err != nil {
		return fmt.Errorf("the first caller has ended: %w", err)
	}
	text, _ := acc.act(ctx, "ask", l.Socket, id, "/forbidden").Output()
	for line := range strings.Lines(string(text)) {
		if event := strings.TrimSpace(line); event == api.EventReady || event == api.EventRunning {
			return breach("the agent took a bind at /forbidden that its policy allows to nobody")
		}
	}
	if !strings.Contains(string(text), "refused") {
		return fmt.Errorf("the second caller was told neither: %s", text)
	}
	return nil
}

// cut is what the role says when its connection has ended.
const cut = "cut"

// askForJob is the role: it asks for a job with an ID and a bind, prints the events it is told until one decides, and
// stays.
func askForJob(args []string) error {
	r := api.JobRequest{ID: args[1], Memory: 256 << 20, Argv: []string{"sleep", "60"}, Dir: "/",
		Binds: []api.Bind{{Target: args[2]}}}
	err := api.NewClient(args[0]).Job(context.Background(), r, func(e api.JobEvent) error {
		fmt.Println(e.Event)
		if args[2] != "/allowed" && (e.Event == api.EventReady || e.Event == api.EventRunning) {
			os.Exit(0)
		}
		return nil
	})
	if p := new(api.Problem); errors.As(err, &p) {
		text, _ := json.Marshal(p)
		fmt.Println("refused", string(text))
		return nil
	}
	fmt.Println(cut)
	time.Sleep(time.Minute) // its job lives as long as it does
	return nil
}
