package placer

import (
	"testing"
	"time"
)

func TestLockWithin(t *testing.T) {
	l := newLock()
	if !l.LockWithin(0) {
		t.Fatal("a free lock is not locked at once")
	}
	if l.LockWithin(time.Millisecond) {
		t.Fatal("two have the lock")
	}
	free := make(chan struct{})
	go func() { <-free; l.Unlock() }()
	close(free)
	if !l.LockWithin(time.Hour) {
		t.Fatal("it was not waited for")
	}
	l.Unlock()
	l.Lock()
}
