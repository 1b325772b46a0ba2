package transfer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/chunk"
)

// Of the process that TestKilled kills.
const (
	killedDir    = "GRANGE_TEST_TRANSFER_DIR"
	killedURL    = "GRANGE_TEST_TRANSFER_URL"
	killedDigest = "GRANGE_TEST_TRANSFER_DIGEST"
	killedOld    = "GRANGE_TEST_TRANSFER_OLD"
)

// TestKilledProcess is that process: it fetches, and prints each step. By itself it is no test.
func TestKilledProcess(t *testing.T) {
	dir := os.Getenv(killedDir)
	if dir == "" {
		return
	}
	digest, err := chunk.ParseSum(os.Getenv(killedDigest))
	if err != nil {
		t.Fatal(err)
	}
	source := requester{os.Getenv(killedURL), "killed"}
	old, err := os.ReadFile(os.Getenv(killedOld))
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFetcher(Options{Dir: dir, Source: source, Dial: dialTest, Log: slog.New(slog.DiscardHandler),
		Rate:  NewRate(8 << 20),
		Files: func() []File { return []File{{sumOf(old), int64(len(old)), os.Getenv(killedOld)}} },
		Locate: LocateBy(func(ctx context.Context) (a fleet.TransferAnswer, err error) {
			r, err := source.Do(ctx, http.MethodGet, "/locate", nil)
			if err != nil {
				return a, err
			}
			defer r.Body.Close()
			return a, json.NewDecoder(r.Body).Decode(&a)
		})})
	if err != nil {
		t.Fatal(err)
	}
	file, err := f.Fetch(t.Context(), digest, func(p Progress) { fmt.Printf("%s\n", p.Step) })
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	fmt.Println("whole")
}

// TestKilled kills a host that fetches at each of its steps, more than once, and lets it go on: it comes to its end,
// and no more is sent than was missing, but for what was on its way at each kill.
func TestKilled(t *testing.T) {
	l, old := newLab(t), content(20, 4<<20)
	file := append(append([]byte{}, old[:3<<20]...), content(21, 8<<20)...)
	digest := l.add(file)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/locate" {
			a, _ := l.source.Locate("killed", loopback, fleet.TransferReport{Wants: []string{digest.String()}},
				time.Now())
			json.NewEncoder(w).Encode(a)
			return
		}
		l.source.Server.ServeHTTP(w, r)
	}))
	defer server.Close()
	here := t.TempDir() + "/old"
	if err := os.WriteFile(here, old, 0o600); err != nil {
		t.Fatal(err)
	}
	dir, kills, seen := t.TempDir(), 0, map[string]bool{}
	for runs := 0; ; runs++ {
		if runs > 40 {
			t.Fatal("it does not come to its end")
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
		cmd.Env = append(os.Environ(), killedDir+"="+dir, killedURL+"="+server.URL, killedDigest+"="+digest.String(),
			killedOld+"="+here)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		whole := killAtNext(cmd, out, seen, runs)
		cmd.Wait()
		if whole {
			break
		}
		kills++
	}
	got, err := os.ReadFile(dir + "/" + partialName(digest) + "/" + dataFile)
	if err != nil || !bytes.Equal(got, file) {
		t.Errorf("%d of %d bytes, %v", len(got), len(file), err)
	}
	x, _ := l.source.index(digest)
	if sent := l.source.Server.Sent(digest); kills < 5 || sent > x.Layout.Bytes+int64(kills)*(2<<20) {
		t.Errorf("%d kills, and the source sent %d bytes of %d", kills, sent, x.Layout.Bytes)
	}
	t.Logf("killed %d times, at %v", kills, seen)
}

// killAtNext kills a process at the first step at which none was killed before, and in the midst of the transfer some
// times. It reports whether the process came to its end.
func killAtNext(cmd *exec.Cmd, out io.Reader, seen map[string]bool, run int) (whole bool) {
	transfers := 0
	for s := bufio.NewScanner(out); s.Scan(); {
		step := s.Text()
		if step == StepTransfer {
			if transfers++; transfers == 3 && run < 10 {
				step = fmt.Sprint(step, run)
			}
		}
		if step == "whole" {
			return true
		}
		if !seen[step] {
			seen[step] = true
			cmd.Process.Kill()
			return false
		}
	}
	return false
}
