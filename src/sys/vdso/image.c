/*
 * The clock of a program that can be replayed: an image that stands in for the kernel's vDSO (vdso(7)).
 *
 * It lies at a fixed address in each program of the run, followed by the program's control page and its
 * tape, so that everything is found relative to the image itself and nothing needs to be relocated:
 *
 *     BASE            this image               private, read and execute
 *     BASE + 0x2000   struct control           private: a forked process gets its own copy
 *     BASE + 0x4000   struct lane [LANES]      shared with the supervisor
 *
 * One timeline lies under all clocks: nanoseconds of CLOCK_MONOTONIC. What a lane holds are points of it;
 * each clock adds an offset of its own.
 *
 * The program can write to the control page and to the tape, and deceives nobody but itself: the
 * supervisor never follows what it finds there. Here every index is held within the tape as well.
 */

typedef unsigned int u32;
typedef unsigned long u64;
typedef int clock_id;
struct timespec { long seconds, nanoseconds; };
struct timeval { long seconds, microseconds; };
struct timezone { int minutes_west, dst; };

#define HIDDEN __attribute__((visibility("hidden")))
#define EXPORTED __attribute__((visibility("default")))

enum { REALTIME, MONOTONIC, TAI, REALTIME_COARSE = 5, MONOTONIC_COARSE, CLOCK_TAI = 11 };
/* 0, 1 and 4 to 7 (REALTIME, MONOTONIC, MONOTONIC_RAW, both coarse ones, BOOTTIME), and 11 (TAI). */
#define CLOCKS 0x8f3u
#define CLOCK_KINDS 8

/*
 * Kinds of reads: the clocks by their numbers, and for times of day which place in the program asked. A runtime
 * reads them for itself as it happens, where its threads wait; what the program itself asks for, elsewhere, stays
 * as it was then.
 */
#define KINDS 64
/*
 * Of CLOCK_MONOTONIC, where the interpreter of a program asks for it (`kind_in_interpreter`): from within what it has
 * called, and from where it calls, as an event loop does. What it reads for its locks is of the clock's own kind.
 */
#define INNER 8
#define OUTER 9
/* Where the program asks for it that libuv's event loop runs (`kind_in_loop`); what the loop reads is of the clock's own. */
#define BESIDE_LOOP 10
#define REALTIME_BY_CALLER 16
#define COARSE_BY_CALLER 32
/* Of Java code; those of CLOCK_REALTIME behind it are of code of the JDK. */
#define JAVA_MONOTONIC 48
#define JAVA_REALTIME 49
#define CALLERS 16
#define OTHERS 8
/* How often in a row a read is held back behind one that comes before it. */
#define HELD 256
/* Bytes of the stack between what a loop of an interpreter calls and itself. */
#define LEVEL 512
/* How many words of the stack are looked at. */
#define WORDS 16
/* How far a read of CLOCK_MONOTONIC_COARSE is looked for. */
#define TICK 64
/* Bytes of the frames of a function of the JVM that reads the clock, and of the C library's below it. */
#define JAVA_FRAME 256
/* The same of the function of libuv that reads the clock; how far the rest of libuv is from it at most. */
#define LOOP_FRAME 128
#define LOOP_CODE (1ul << 18)
/* Bytes of a function that only asks on. */
#define SHORT_FUNCTION 64

/* The program's own, or none at all; one that waits; one of those that read the clock. */
enum method { UNKNOWN, OWN, WAITS, READS };

enum mode { PASS, RECORD, REPLAY, SHIFT, RECORD_SHIFT };

#define THREADS 256
#define METHODS 256
#define METHOD_SHIFT 56
/* Entries of the table that are looked at. */
#define NEAR_METHODS 16
#define LANES 1024
#define POINTS 2023
#define NO_LANE 0xffffffffu
#define SECOND 1000000000ul
/*
 * What a recorded time of day may be before or behind a clock at real rate, beyond what the one before was: else it
 * may have been told on the other side of a wait, as the supervisor knows.
 */
#define APART (SECOND / 10)

/* A point of the timeline, and above it the kind of read. */
#define KIND_SHIFT 58
#define POINT_MASK ((1ul << KIND_SHIFT) - 1)

struct thread { u64 fs_base; u32 lane; u32 spare; };

/* Written by the supervisor while the program stands still. */
struct control {
	u32 mode;
	/* The lane of the only thread; in the shift modes that of all threads. */
	u32 lane;
	/* There are several: each is looked for in the table below. In the shift modes, those that have a lane are. */
	u32 threaded;
	/* The instruction that reads the base of FS is there; the program is an interpreter. */
	unsigned short has_fs_base, is_interpreter;
	/* Functions of the kernel's own vDSO, or 0. */
	u64 gettime, getres, getcpu;
	/* What the shift modes add to the timeline. */
	u64 shift;
	/* What each clock adds to the timeline. */
	u64 offsets[CLOCK_KINDS];
	/* The first instruction of the program. */
	u64 entry;
	/* The code of the program itself; in the shift modes, that of the JVM. */
	u64 text, text_size;
	/* Of a program that libuv's event loop runs, the function that it asks for CLOCK_MONOTONIC, and the one V8 does; or 0. */
	u64 loop_clock, engine_clock;
	struct thread threads[THREADS];
	/* Methods of Java that have read CLOCK_MONOTONIC, and in the upper byte what each is (`enum method`). */
	u64 methods[METHODS];
	/* The supervisor was asked where the interpreter's code is. */
	u64 was_asked;
};

/* The tape of one thread. */
struct lane {
	/* Reads so far; those beyond `count` are not on the tape. */
	u64 cursor;
	/* Points that there are (replay), or room for them (record). */
	u64 count;
	/* Whether the supervisor is asked beyond them, and whether the end was left behind. */
	u32 more, adrift;
	/* The last point that was given out, and what real time adds to the kernel's clock beyond the end. */
	u64 last, skew;
	/* Reads that were not the next on the tape; of a clock at real rate, what its times of day are behind it. */
	union { u64 mismatches, late; };
	/* Where the next read of each kind is looked for. */
	unsigned short next[KINDS];
	/* The last time of CLOCK_MONOTONIC that Java code, or an interpreter, was given: there it never goes back. */
	u64 floor;
	/* From where on the stack an interpreter asked that was called by the fewest; how often in a row one was held. */
	u64 outermost, held;
	u64 points[POINTS];
};

/* The supervisor knows these. */
_Static_assert(__builtin_offsetof(struct control, methods) == 4248, "the table of methods");
_Static_assert(__builtin_offsetof(struct control, threads) == 152, "head of the control page");
_Static_assert(sizeof(struct control) <= 0x2000, "the control page");
_Static_assert(__builtin_offsetof(struct lane, points) == 200, "head of a lane");
_Static_assert(sizeof(struct lane) == 0x4000, "a lane");

extern const char __ehdr_start[] HIDDEN;
#define CONTROL ((struct control *)(__ehdr_start + 0x2000))
#define TAPE ((struct lane *)(__ehdr_start + 0x4000))

/* The third argument of a read that the supervisor answers, which the kernel does not look at: its kind. */
#define KIND_IS 0x74696d6500000000ul
/* And of a question what the method in the fourth argument is. */
#define METHOD_IS 0x6d65746800000000ul

#define CLOCK_GETTIME 228
#define CLOCK_GETRES 229
#define GETCPU 309

static inline long call(long number, long a, long b, long c)
{
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

/*
 * Reads the machine's clock. Where the kernel's vDSO cannot do that alone, the call is made here: the one
 * place whose clock_gettime the filter lets through. The layout puts it where the filter looks for it.
 */
long real_clock(long id, struct timespec *time) HIDDEN;
__asm__(".pushsection .text.real_clock, \"ax\"\n"
	".hidden real_clock\n"
	"real_clock:\n"
	"	mov $228, %eax\n"
	"	syscall\n"
	"	ret\n"
	".popsection\n");

/*
 * The way into a new program, on which it makes the call that the supervisor has put into the registers, which
 * are all zero where a program begins (the flags stay as they are). The layout puts it where the supervisor
 * expects it.
 */
_Static_assert(__builtin_offsetof(struct control, entry) == 0x70, "the way into the program");
__asm__(".pushsection .text.way_in, \"ax\"\n"
	"	syscall\n"
	"	mov $0, %eax\n"
	"	mov $0, %edi\n"
	"	mov $0, %ecx\n"
	"	mov $0, %r11d\n"
	"	jmp *__ehdr_start+0x2070(%rip)\n"
	".popsection\n");

static inline long real(const struct control *control, clock_id id, struct timespec *time)
{
	long (*gettime)(clock_id, struct timespec *) = (void *)control->gettime;
	return gettime ? gettime(id, time) : real_clock(id, time);
}

static inline u64 nanoseconds(const struct timespec *time)
{
	return (u64)time->seconds * SECOND + (u64)time->nanoseconds;
}

static inline long give(u64 value, struct timespec *time)
{
	time->seconds = (long)(value / SECOND);
	time->nanoseconds = (long)(value % SECOND);
	return 0;
}

/* The lane of the calling thread; 0 where it has none: then the supervisor answers each read. */
static inline struct lane *own_lane(const struct control *control)
{
	u32 lane = control->lane;
	if (control->threaded) {
		lane = NO_LANE;
		if (!control->has_fs_base)
			return 0;
		u64 base;
		__asm__ volatile("rdfsbase %0" : "=r"(base));
		u32 hash = (u32)(base >> 6) * 2654435761u >> 24;
		for (u32 step = 0; step < THREADS; step++) {
			const struct thread *thread = &control->threads[(hash + step) % THREADS];
			if (thread->fs_base == base) {
				lane = thread->lane;
				break;
			}
			if (!thread->fs_base)
				break;
		}
	}
	return lane < LANES ? &TAPE[lane] : 0;
}

/*
 * Takes the next place of the tape. One instruction: a signal handler that reads the clock between two
 * others would otherwise take the same place again.
 */
static inline u64 advance(struct lane *lane)
{
	u64 place = 1;
	__asm__ volatile("xaddq %0, %1" : "+r"(place), "+m"(lane->cursor)::"memory");
	return place;
}

/* The clock of a kind. */
static inline u32 clock_of(u32 kind)
{
	if (kind < INNER)
		return kind;
	if (kind < REALTIME_BY_CALLER || kind == JAVA_MONOTONIC)
		return MONOTONIC;
	return kind >= COARSE_BY_CALLER && kind < JAVA_MONOTONIC ? REALTIME_COARSE : REALTIME;
}

static inline u32 hash_of(u64 address)
{
	return (u32)(address * 0x9e3779b97f4a7c15ul >> 60);
}

/*
 * The kind of a read whose return address lies at `frame`: C libraries call us from a function of their own, so
 * the first word from there on counts that lies in the program's code. Nothing beyond the page is looked at: the
 * stack may end there.
 */
static inline u32 kind_by_caller(const struct control *control, u32 first, u32 otherwise, const u64 *frame)
{
	for (int at = 0; at < 8 && (!at || (u64)(frame + at) & 4095); at++)
		if (frame[at] - control->text < control->text_size)
			return first + hash_of(frame[at]) % CALLERS;
	return otherwise;
}

/* The supervisor answers. */
static inline long ask(u32 kind, clock_id id, struct timespec *time)
{
	return call(CLOCK_GETTIME, id, (long)time, (long)(KIND_IS | kind));
}

static long record(const struct control *control, struct lane *lane, u32 kind, clock_id id, struct timespec *time)
{
	u64 place = advance(lane);
	int on_tape = place < lane->count && place < POINTS;
	if (!on_tape && lane->more)
		return ask(kind, id, time);
	long failed = real(control, id, time);
	if (failed || !on_tape)
		return failed;
	u64 point = nanoseconds(time) - control->offsets[clock_of(kind)];
	lane->points[place] = (u64)kind << KIND_SHIFT | (point & POINT_MASK);
	return 0;
}

/* Beyond the end of the tape the last point is left at the rate of real time: it never stands still. */
static u64 adrift(const struct control *control, struct lane *lane)
{
	struct timespec now;
	if (real(control, MONOTONIC, &now))
		return lane->last;
	u64 kernel = nanoseconds(&now);
	if (!lane->adrift) {
		lane->skew = lane->last - kernel;
		lane->adrift = 1;
	}
	u64 point = kernel + lane->skew;
	if ((long)(point - lane->last) > 0)
		lane->last = point;
	return lane->last;
}

/*
 * The next time of day for this caller. One that others come before, so many of them, was asked for later: this read
 * was not made while recording, as of a runtime whose threads wait for each other.
 */
static u64 find_own(const struct lane *lane, u64 count, u32 kind)
{
	u32 others = 0;
	for (u64 place = lane->next[kind]; place < count; place++) {
		u64 other = lane->points[place] >> KIND_SHIFT;
		if (other == kind)
			return place;
		if (other >= REALTIME_BY_CALLER && place >= lane->next[other] && ++others > OTHERS)
			break;
	}
	return count;
}

/* The first read of this kind from `place` on. */
static u64 find(const struct lane *lane, u64 count, u64 place, u32 kind)
{
	while (place < count && lane->points[place] >> KIND_SHIFT != kind)
		place++;
	return place;
}

/*
 * The place of this read on the tape.
 *
 * C libraries and runtimes read CLOCK_MONOTONIC where a thread waits for others: now and then more often, or
 * less, than while it was recorded. So do event loops with CLOCK_MONOTONIC_COARSE: where no such read is near, the
 * other clock goes on. Reads of the other clocks are the program's own: each is the next of its
 * kind, and what follows goes on from there.
 */
static u64 seek(struct lane *lane, u64 count, u32 kind)
{
	if (kind == MONOTONIC_COARSE) {
		u64 from = lane->cursor;
		u64 end = from < count && count - from > TICK ? from + TICK : count;
		u64 place = find(lane, end, from, kind);
		if (place >= end)
			place = find(lane, count, from, MONOTONIC);
		lane->mismatches += place != from;
		lane->cursor = place + 1;
		return place;
	}
	if (kind != MONOTONIC) {
		u64 place = kind < REALTIME_BY_CALLER ? find(lane, count, lane->next[kind], kind)
						      : find_own(lane, count, kind);
		if (place < count) {
			lane->mismatches += place != lane->cursor;
			lane->cursor = place + 1;
			lane->next[kind] = (unsigned short)(place + 1);
		}
		return place;
	}
	u64 place = advance(lane);
	if (place < count && lane->points[place] >> KIND_SHIFT != kind) {
		lane->mismatches++;
		place = find(lane, count, place, kind);
		lane->cursor = place + 1;
	}
	return place;
}

static long replay(const struct control *control, struct lane *lane, u32 kind, clock_id id, struct timespec *time)
{
	u64 count = lane->count < POINTS ? lane->count : POINTS;
	u64 place = seek(lane, count, kind);
	if (place < count) {
		lane->last = lane->points[place] & POINT_MASK;
		lane->adrift = 0;
		return give(lane->last + control->offsets[clock_of(kind)], time);
	}
	if (lane->more)
		return ask(kind, id, time);
	return give(adrift(control, lane) + control->offsets[clock_of(kind)], time);
}

/* The place of the next read of this kind; of those that are over, the last. */
static u64 seek_outer(const struct lane *lane, u64 count)
{
	u64 place = find(lane, count, lane->next[OUTER], OUTER);
	while (place < count && (lane->points[place] & POINT_MASK) < lane->floor) {
		u64 next = find(lane, count, place + 1, OUTER);
		if (next >= count || (lane->points[next] & POINT_MASK) > lane->floor)
			break;
		place = next;
	}
	return place;
}

/*
 * A read of CLOCK_MONOTONIC that an interpreter's program makes, in a replay: the next of its own. A loop that turns
 * more often than it did does not come before what it had called then; one that turns less often passes some over.
 */
static long replay_own(const struct control *control, struct lane *lane, u32 kind, clock_id id, struct timespec *time)
{
	u64 count = lane->count < POINTS ? lane->count : POINTS;
	u64 place = kind == OUTER ? seek_outer(lane, count) : find(lane, count, lane->next[kind], kind);
	u64 inner = kind == OUTER ? find(lane, count, lane->next[INNER], INNER) : count;
	if (inner < place && lane->held < HELD) {
		lane->held++;
		lane->mismatches++;
		return give(++lane->floor, time);
	}
	lane->held = 0;
	u64 point = lane->floor;
	if (place < count) {
		lane->mismatches += place != lane->cursor;
		lane->next[kind] = (unsigned short)(place + 1);
		lane->cursor = place + 1;
		lane->adrift = 0;
		point = lane->last = lane->points[place] & POINT_MASK;
	} else if (lane->more) {
		long failed = ask(kind, id, time);
		if (failed)
			return failed;
		point = nanoseconds(time);
	} else {
		point = adrift(control, lane);
	}
	if (kind == INNER || lane->floor < point)
		lane->floor = point;
	return give(lane->floor, time);
}

/* Takes the next place of a tape that all threads share. */
static u64 advance_shared(struct lane *lane)
{
	u64 place = 1;
	__asm__ volatile("lock xaddq %0, %1" : "+r"(place), "+m"(lane->cursor)::"memory");
	return place;
}

/* Puts `new` in place of `former`, if nobody else has put anything there. */
static int swap(u64 *place, u64 former, u64 new)
{
	u64 found = former;
	__asm__ volatile("lock cmpxchgq %2, %1" : "+a"(found), "+m"(*place) : "r"(new) : "memory");
	return found == former;
}

/*
 * A time of day of a clock at real rate, which stands at `point`: the next on the tape, which has those of all
 * threads in a row. Where it is later, so is the clock from there on; where it is earlier, those that follow will be
 * as well.
 */
static long time_of_day(const struct control *control, struct lane *lane, u64 point, clock_id id, struct timespec *time)
{
	u64 count = lane->count < POINTS ? lane->count : POINTS;
	for (;;) {
		u64 place = *(volatile u64 *)&lane->cursor, late = lane->late;
		if (place >= count && lane->more)
			return call(CLOCK_GETTIME, id, (long)time, 0);
		if (place >= count)
			return give(point - late + control->offsets[REALTIME], time);
		u64 recorded = lane->points[place] & POINT_MASK;
		long over = (long)(point - late - recorded);
		if (over > (long)APART || over < -(long)APART)
			return call(CLOCK_GETTIME, id, (long)time, 0);
		if (!swap(&lane->cursor, place, place + 1))
			continue;
		long ahead = (long)(recorded - point);
		u64 skew = *(volatile u64 *)&lane->skew;
		/* Another thread may have moved it meanwhile. */
		if (ahead > 0)
			swap(&lane->skew, skew, skew + (u64)ahead);
		lane->late = ahead > 0 ? 0 : (u64)-ahead;
		return give(recorded + control->offsets[REALTIME], time);
	}
}

/*
 * A clock at real rate. Runtimes read CLOCK_MONOTONIC for themselves, in threads that run as it happens; times of
 * day are the program's own reads.
 */
static long shifted(const struct control *control, u32 kind, clock_id id, struct timespec *time)
{
	struct lane *lane = control->lane < LANES ? &TAPE[control->lane] : 0;
	u64 skew = lane && control->mode == SHIFT ? *(volatile u64 *)&lane->skew : 0;
	struct timespec now;
	long failed = real(control, MONOTONIC, &now);
	if (failed)
		return failed;
	u64 point = nanoseconds(&now) + control->shift + skew;
	if (lane && control->mode == SHIFT) {
		lane->last = point;
		if (kind == REALTIME)
			return time_of_day(control, lane, point, id, time);
	} else if (lane && kind == REALTIME) {
		u64 place = advance_shared(lane);
		if (place < lane->count && place < POINTS)
			lane->points[place] = point & POINT_MASK;
		else if (lane->more)
			return call(CLOCK_GETTIME, id, (long)time, 0);
	}
	return give(point + control->offsets[kind], time);
}

static u32 ask_for(u64 method)
{
	register u64 asked __asm__("r10") = method;
	struct timespec unused;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(CLOCK_GETTIME), "D"(MONOTONIC), "S"(&unused), "d"(METHOD_IS), "r"(asked)
			 : "rcx", "r11", "memory");
	return (u32)result;
}

/*
 * What a method of Java is, or a place of an interpreter: the supervisor is asked once, and puts it into the table as
 * long as there is room; `unknown` where there is none.
 */
static u32 class_of(const struct control *control, u64 method, u32 unknown)
{
	u32 first = (u32)(method >> 3) * 2654435761u >> 24;
	for (u32 step = 0; step < NEAR_METHODS; step++) {
		u64 known = *(const volatile u64 *)&control->methods[(first + step) % METHODS];
		if ((known & ((1ul << METHOD_SHIFT) - 1)) == method)
			return (u32)(known >> METHOD_SHIFT);
		if (known)
			continue;
		return ask_for(method);
	}
	return unknown;
}

/* Whether a word on the stack is the address of a frame further up. */
static inline int is_frame(u64 up, const u64 *frame)
{
	u64 base;
	__asm__ volatile("rdfsbase %0" : "=r"(base));
	return !(up & 7) && up > (u64)frame + 24 && up < base;
}

/*
 * The method of the JDK that asks, as of locks and pools, which wait: how often they do is a matter of chance; 0 where
 * it is another. That can be told where the interpreter runs both the function that reads the clock, whose frame
 * `own` is, and its caller: each frame of the interpreter has its method three words below the address of the one
 * before.
 */
static inline u32 class_of_method(const struct control *control, u64 method)
{
	return method & 7 || method >> 47 ? OWN : class_of(control, method, OWN);
}

static u64 jdk_method(const struct control *control, u64 own, const u64 *frame)
{
	if (!is_frame(own, frame))
		return 0;
	u64 caller = *(const u64 *)own, method = ((const u64 *)own)[-3];
	if (!is_frame(caller, (const u64 *)own) || class_of_method(control, method) != READS)
		return 0;
	method = ((const u64 *)caller)[-3];
	return class_of_method(control, method) == WAITS ? method : 0;
}

/*
 * The kind of a read in a thread of the JVM, where it is on the thread's own tape; KINDS where it is not. Java code
 * calls a function of the JVM that calls the C library, at once or by a jump from another. The JVM itself reads
 * CLOCK_MONOTONIC as it happens: then this function returns into the JVM. Its code keeps frame pointers, which
 * clock_gettime of the C library leaves as they are.
 */
static u32 kind_in_java(const struct control *control, u32 kind, const u64 *frame)
{
	u64 up = frame[-1];
	if (up & 7 || up - (u64)frame > JAVA_FRAME || (kind != MONOTONIC && kind != REALTIME))
		return KINDS;
	u64 own = *(const u64 *)up, from = ((const u64 *)up)[1];
	if (from - control->text < control->text_size)
		return kind == MONOTONIC ? KINDS : REALTIME_BY_CALLER + hash_of(from) % CALLERS;
	u64 method = jdk_method(control, own, frame);
	if (kind == MONOTONIC)
		return method ? KINDS : JAVA_MONOTONIC;
	return method ? JAVA_REALTIME + 1 + hash_of(method) % (KINDS - 1 - JAVA_REALTIME) : JAVA_REALTIME;
}

/* What Java code reads in a replay, which goes on from call to call of the program (`marked.rs`). */
static long replay_in_java(const struct control *control, struct lane *lane, u32 kind, clock_id id,
			   struct timespec *time)
{
	long failed = replay(control, lane, kind, id, time);
	if (failed || kind != JAVA_MONOTONIC)
		return failed;
	u64 now = nanoseconds(time);
	if (now < lane->floor)
		return give(lane->floor, time);
	lane->floor = now;
	return 0;
}

/*
 * The kind of a read of CLOCK_MONOTONIC by an interpreter: whether one of the functions that its programs call is among
 * those that ask, and how deep in the stack. A function that an event loop has called is deeper than the loop.
 */
static u32 kind_in_interpreter(struct control *control, struct lane *lane, const u64 *frame)
{
	u32 places = 0;
	for (int at = 0; at < WORDS && (!at || (u64)(frame + at) & 4095); at++) {
		if (frame[at] - control->text >= control->text_size)
			continue;
		places++;
		/* Those that ask are few; where each allocation takes a lock (tracemalloc), those that allocate are many. */
		if (class_of(control, frame[at], WAITS) != OWN)
			continue;
		if ((u64)frame > lane->outermost)
			lane->outermost = (u64)frame;
		return lane->outermost - (u64)frame > LEVEL ? INNER : OUTER;
	}
	if (places || control->was_asked)
		return MONOTONIC;
	/* Its code may be in a library. */
	control->was_asked = 1;
	ask_for(0);
	return kind_in_interpreter(control, lane, frame);
}

/*
 * The kind of a read of CLOCK_MONOTONIC in a program that libuv's event loop runs. The loop reads it by the function
 * that programs call as well (uv_hrtime), as often as it turns, and V8 for itself by one that calls that. Its frame has
 * a frame pointer, which clock_gettime of the C library leaves as it is: behind that lies who has called it.
 */
static u32 kind_in_loop(const struct control *control, const u64 *frame)
{
	u64 up = frame[-1], start = control->loop_clock - LOOP_CODE;
	if (up & 7 || up - (u64)frame > LOOP_FRAME)
		return MONOTONIC;
	const u64 *own = (const u64 *)up, *at = frame;
	while (at < own && *at - control->text >= control->text_size)
		at++;
	if (at >= own || *at - start >= 2 * LOOP_CODE)
		return MONOTONIC;
	u64 from = own[1];
	if (from - control->text >= control->text_size || from - start < 2 * LOOP_CODE ||
	    from - control->engine_clock < SHORT_FUNCTION)
		return MONOTONIC;
	return BESIDE_LOOP;
}

/* `frame` is where the return address of the caller lies. */
static long gettime(clock_id id, struct timespec *time, const u64 *frame)
{
	struct control *control = CONTROL;
	/* Those of CPU time, of devices, and unknown ones. */
	if ((u32)id > CLOCK_TAI || !(CLOCKS >> id & 1))
		return call(CLOCK_GETTIME, id, (long)time, 0);
	u32 kind = id == CLOCK_TAI ? TAI : (u32)id;
	if (control->mode == SHIFT || control->mode == RECORD_SHIFT) {
		u32 own = control->threaded && control->has_fs_base ? kind_in_java(control, kind, frame) : KINDS;
		struct lane *lane = own < KINDS ? own_lane(control) : 0;
		if (!lane)
			return shifted(control, kind, id, time);
		return control->mode == SHIFT ? replay_in_java(control, lane, own, id, time)
					      : record(control, lane, own, id, time);
	}
	if (control->mode != RECORD && control->mode != REPLAY)
		return real(control, id, time);
	struct lane *lane = own_lane(control);
	if (kind == REALTIME)
		kind = kind_by_caller(control, REALTIME_BY_CALLER, kind, frame);
	else if (kind == REALTIME_COARSE)
		kind = kind_by_caller(control, COARSE_BY_CALLER, kind, frame);
	else if (kind == MONOTONIC && control->is_interpreter && lane)
		kind = kind_in_interpreter(control, lane, frame);
	else if (kind == MONOTONIC && control->loop_clock)
		kind = kind_in_loop(control, frame);
	if (lane && control->mode == REPLAY && (kind == INNER || kind == OUTER))
		return replay_own(control, lane, kind, id, time);
	if (!lane)
		return ask(kind, id, time);
	return control->mode == RECORD ? record(control, lane, kind, id, time) : replay(control, lane, kind, id, time);
}

/* Where the return address of an exported function lies. */
#define FRAME ((const u64 *)__builtin_frame_address(0) + 1)

EXPORTED int __vdso_clock_gettime(clock_id id, struct timespec *time)
{
	return (int)gettime(id, time, FRAME);
}

EXPORTED int __vdso_gettimeofday(struct timeval *time, struct timezone *zone)
{
	if (time) {
		struct timespec now;
		int failed = (int)gettime(REALTIME, &now, FRAME);
		if (failed)
			return failed;
		time->seconds = now.seconds;
		time->microseconds = (long)((u64)now.nanoseconds / 1000);
	}
	if (zone)
		zone->minutes_west = zone->dst = 0;
	return 0;
}

EXPORTED long __vdso_time(long *time)
{
	struct timespec now;
	long failed = gettime(REALTIME_COARSE, &now, FRAME);
	if (failed)
		return failed;
	if (time)
		*time = now.seconds;
	return now.seconds;
}

EXPORTED int __vdso_clock_getres(clock_id id, struct timespec *resolution)
{
	int (*getres)(clock_id, struct timespec *) = (void *)CONTROL->getres;
	return getres ? getres(id, resolution) : (int)call(CLOCK_GETRES, id, (long)resolution, 0);
}

EXPORTED long __vdso_getcpu(u32 *cpu, u32 *node, void *unused)
{
	long (*getcpu)(u32 *, u32 *, void *) = (void *)CONTROL->getcpu;
	return getcpu ? getcpu(cpu, node, unused) : call(GETCPU, (long)cpu, (long)node, 0);
}
