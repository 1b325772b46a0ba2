package agent

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/admission"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
)

func TestJobsOfAUser(t *testing.T) {
	a := testAgent(t, testShapes)
	user, other := Caller{UID: 4711}, Caller{UID: 4712}
	for range a.mostJobs() {
		if err := a.roomForLocked(newJob(a, api.NewID(), user), a.mostJobs()); err != nil {
			t.Fatal(err)
		}
		j := newJob(a, api.NewID(), user)
		a.live[j.id] = j
	}
	late := newJob(a, api.NewID(), user)
	if entered, err := a.enter(nil, late); entered || !farm.IsCode(err, farm.CodeTooManyJobs) ||
		!farm.IsKind(err, farm.NoCapacity) {
		t.Errorf("one too many: %v, %v", entered, err)
	}
	for _, c := range []Caller{other, {}} { // root has no limit, and the agent's own tests may run as anybody
		if err := a.roomForLocked(newJob(a, api.NewID(), c), a.mostJobs()); err != nil {
			t.Errorf("user %d: %v", c.UID, err)
		}
	}
}

// TestBodies: a user's large bodies come one by one, and none may take for ever.
func TestBodies(t *testing.T) {
	defer func(d time.Duration) { bodyTime = d }(bodyTime)
	bodyTime = 300 * time.Millisecond
	a := testAgent(t, testShapes)
	arrived := make(chan error, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var text string
		err := routes{a}.decode(w, r, Caller{UID: 4711}, &text)
		arrived <- err
		if err == nil {
			<-r.Context().Done() // as long as a job: the time limit is over by then
			arrived <- r.Context().Err()
		}
	}))
	defer server.Close()
	send := func(head, body string) net.Conn {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\n"+head+"\r\n\r\n"+body)
		return c
	}
	began := time.Now()
	slow := send("Content-Length: 2000000", `"x`)
	defer slow.Close()
	if err := <-arrived; !farm.IsCode(err, CodeSlowRequest) || !farm.IsKind(err, farm.Unavailable) ||
		time.Since(began) < bodyTime {
		t.Errorf("a body that does not come: %v after %v", err, time.Since(began))
	}

	done, err := a.admission.Carry(t.Context(), 4711)
	if err != nil {
		t.Fatal(err)
	}
	large := send("Content-Length: 2000002", `"`+strings.Repeat("x", 2000000)+`"`)
	small := send("Content-Length: 3", `"x"`)
	if err := <-arrived; err != nil {
		t.Errorf("a small one beside a large one: %v", err)
	}
	time.Sleep(2 * bodyTime)
	select {
	case err := <-arrived:
		t.Errorf("a second large one did not wait, or the time limit outlives its body: %v", err)
	default:
	}
	small.Close()
	<-arrived // its end is noticed
	done()
	if err := <-arrived; err != nil {
		t.Errorf("the large one, in its turn: %v", err)
	}
	large.Close()
	<-arrived
}

// TestAgentThatCannotAccept is not reachable until it was again for as long as callers may be silent.
func TestAgentThatCannotAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d admission.Shares
		for range 60 {
			d.Note(time.Now())
			time.Sleep(time.Second)
			if d.Reachable() {
				t.Fatal("an agent without descriptors is reachable")
			}
		}
		time.Sleep(machine.HeartbeatTimeout + 2*time.Second)
		if !d.Reachable() {
			t.Error("it could be heard again, and is not")
		}
		d.Note(time.Now())
		time.Sleep(time.Second)
		if d.Reachable() {
			t.Error("an agent is reachable that is without descriptors again")
		}
	})
}
