//go:build race

package partition

const underRace = true
