package admission

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
)

// TestBodiesOfAll: of all users so much is read at once, in the order of arrival, and one user does not hold all of it.
func TestBodiesOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, most := new(bodies), bounds{all: 10, each: 6}
		var mu sync.Mutex
		reads := map[string]func(){}
		ask := func(name string, user uint32, size int64) {
			go func() {
				if done, err := b.hold(t.Context(), user, size, most); err == nil {
					mu.Lock()
					reads[name] = done
					mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		expect := func(names ...string) {
			t.Helper()
			synctest.Wait()
			if len(reads) != len(names) {
				t.Errorf("%d are read, not %v", len(reads), names)
			}
			for _, name := range names {
				if reads[name] == nil {
					t.Errorf("%s is not read", name)
				}
			}
		}
		end := func(name string) { reads[name](); delete(reads, name) }
		ask("first", 1, 6)
		ask("first's second", 1, 1) // waits for its user's
		ask("other", 2, 3)
		expect("first", "other")
		ask("large", 3, 5) // waits for room
		ask("small", 4, 1) // and this one behind it
		expect("first", "other")
		end("first")
		expect("first's second", "other", "large", "small")
		for _, name := range []string{"first's second", "other", "large", "small"} {
			end(name)
		}
		if b.held != 0 || len(b.of) > 0 || len(b.waiting) > 0 {
			t.Errorf("%d bytes, %d users, %d waiting", b.held, len(b.of), len(b.waiting))
		}
		ask("as much as there is", 1, 100)
		expect("as much as there is")
		impatient, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := b.hold(impatient, 1, 1, most)
			left <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-left; err == nil || len(b.waiting) > 0 {
			t.Errorf("one that went away: %v, %d waiting", err, len(b.waiting))
		}
	})
}

// TestReadOfManyUsers: large requests of any number of users take a bounded amount of memory, and small ones of others
// are read beside them.
func TestReadOfManyUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(Shares)
		const size = 128 << 20
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		read := make(chan func(), 100)
		for user := range uint32(100) {
			go func() {
				if done, err := s.Read(ctx, user, size); err == nil {
					read <- done
				}
			}()
		}
		synctest.Wait()
		if n := int64(len(read)); n*size > largeBodies.all || n == 0 {
			t.Errorf("%d large requests are read at once", n)
		}
		done, err := s.Read(ctx, 200, 100)
		if err != nil {
			t.Fatal(err)
		}
		done()
		(<-read)()
		synctest.Wait()
		if n := int64(len(read)); n != largeBodies.all/size {
			t.Errorf("%d are read behind one that has ended", n)
		}
	})
}
