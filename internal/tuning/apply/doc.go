// Package apply makes the changes that findings ask for, in a safe order, records what was there, and undoes them.
package apply
