package admission

import "testing"

// TestCrowd: of all users' connections there are so many, and the user who has the most makes room for others: first by
// connections that serve no request, the newest first.
func TestCrowd(t *testing.T) {
	a := &crowd{most: 10}
	enter := func(user uint32) (c, closes *Connection, ok bool) {
		c = new(Connection)
		closes, ok = a.enter(c, user)
		return c, closes, ok
	}
	var greedy []*Connection
	for range 8 {
		c, closes, ok := enter(1)
		if !ok || closes != nil {
			t.Fatal("there was room")
		}
		greedy = append(greedy, c)
	}
	modest, _, _ := enter(2)
	enter(2)
	if _, _, ok := enter(1); ok {
		t.Error("the user who has the most gets more")
	}
	for _, c := range []*Connection{greedy[0], greedy[7]} {
		c.Serves()
	}
	if _, closes, ok := enter(3); !ok || closes != greedy[6] {
		t.Errorf("the newest that serves nothing does not make room: %v", ok)
	}
	for n, c := range greedy[1:6] {
		if n < 3 {
			c.Serves()
		}
	}
	for _, want := range []*Connection{greedy[5], greedy[4]} {
		if _, closes, ok := enter(4); !ok || closes != want {
			t.Errorf("%v made room", closes)
		}
	}
	if _, closes, ok := enter(2); !ok || closes != greedy[7] {
		t.Error("of connections that all serve, the newest does not make room")
	}
	a.leave(greedy[7], 1) // which is closed by now
	if a.open != 10 {
		t.Errorf("%d connections are counted", a.open)
	}
	a.leave(modest, 2)
	if _, closes, ok := enter(1); !ok || closes != nil {
		t.Error("a connection that has ended takes room")
	}
}
